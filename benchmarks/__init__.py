"""Programs of the repository, not of the wheel: they time, simulate, and write pages of docs/."""
