"""One file for each command that a person types."""
