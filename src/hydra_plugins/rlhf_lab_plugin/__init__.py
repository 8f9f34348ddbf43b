"""The plugins that Hydra looks for in this package; their code is in rlhf_lab.sweeps."""
