"""Numbers that small runs predict of larger ones, written down before these, and their scores."""
