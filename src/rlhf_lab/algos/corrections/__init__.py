"""Corrections for off-policy samples: weights or masks of the tokens of a loss."""
