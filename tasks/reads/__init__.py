"""FASTQ: checked, counted, aligned."""
