"""The sample sheet: what a lab hands in."""
