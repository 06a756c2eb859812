"""The reference genome: sequence, contigs, builds, regions, and what fits it."""
