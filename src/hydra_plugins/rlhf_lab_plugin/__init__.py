"""Hydra finds plugins here and nowhere else; what they do is in rlhf_lab.sweeps."""
