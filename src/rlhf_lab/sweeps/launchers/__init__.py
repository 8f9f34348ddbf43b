"""Where the jobs of a sweep run: torchrun, layouts of nodes, and Slurm."""
