"""Composition: the command line and the Prefect flows."""
