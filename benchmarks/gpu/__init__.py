"""`make gpu-check`: whether a GPU computes what a CPU does, and how fast."""
