"""Commands that each answer one question about runs in the terminal."""
