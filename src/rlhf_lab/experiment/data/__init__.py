"""The report of `rlhf-lab data`."""
