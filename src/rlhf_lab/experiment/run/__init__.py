"""A run from its first step to its record."""
