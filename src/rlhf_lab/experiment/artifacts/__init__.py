"""The stages before a run: what they make, and where it is kept."""
