"""Coverage: usable depth along the genome, what it says of targets and genes, and where a missing call means REF."""
