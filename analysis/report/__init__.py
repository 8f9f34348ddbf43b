"""`rlhf-lab report RUNS...`: questions, curves and runs as one HTML page (docs/report.md)."""
