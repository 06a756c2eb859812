"""A seeded simulator of genomes, genes, individuals and sequencing, for training, tests and the demo."""
