"""Figures: from tables to a matplotlib Figure, its data and its caption (docs/results.md)."""
