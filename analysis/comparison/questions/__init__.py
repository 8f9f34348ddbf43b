"""The claims of the paper and the questions of sweeps/, each with numbers and a verdict."""
