"""Many runs of one question: a grid of jobs or a search, on this machine or on Slurm."""
