"""From aligned reads to genotyped variants."""
