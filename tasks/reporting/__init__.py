"""What a run tells people: manifest, report, MultiQC."""
