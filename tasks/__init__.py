"""Genomics files and units of work, and the Dask workers that host them."""
