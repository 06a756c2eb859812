"""BAM and CRAM: checked, counted, indexed."""
