"""VCF and BCF: records, normalised alleles, scores joined back."""
