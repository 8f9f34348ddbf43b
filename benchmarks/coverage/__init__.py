"""How often intervals hold the truth, by simulation."""
