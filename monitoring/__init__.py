"""Metrics, k-mer profiles, drift and audit; imports none of the other packages."""
