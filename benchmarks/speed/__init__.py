"""Programs that start runs, time them, and compare them with other software."""
