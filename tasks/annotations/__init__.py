"""Published annotation files (ClinVar, gnomAD and their like) joined to the cohort's alleles."""
