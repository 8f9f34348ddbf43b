"""Conditions over seeds: which may be compared, and the questions that are asked of them."""
