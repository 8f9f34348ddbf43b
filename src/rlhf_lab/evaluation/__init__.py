"""What a saved weight version is worth: win-rate, KL, pass@k, and scores over updates."""
