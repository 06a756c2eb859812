"""What organisms contigs and long reads are from, and where they lie by their composition."""
