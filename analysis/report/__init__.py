"""`rlhf-lab report RUNS...`: questions, curves and runs as one HTML page (docs/results.md)."""
