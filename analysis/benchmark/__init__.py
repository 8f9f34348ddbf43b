"""The tracked benchmark: the nano sweeps' runs, kept as tables, and what they say of the paper."""
