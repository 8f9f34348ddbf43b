"""The tracked benchmark: tables of the nano sweeps' runs, and their verdicts on the paper."""
