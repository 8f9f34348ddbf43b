"""What the paper claims and what sweeps ask, answered from tables: numbers, intervals, verdicts."""
