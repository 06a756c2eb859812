"""Splicing: transcripts, windows around alleles, and what a change of splice sites is called."""
