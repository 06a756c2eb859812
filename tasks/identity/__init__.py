"""Who the samples are: sex, kinship and names, beside what the sheet says."""
