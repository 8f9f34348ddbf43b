"""Estimators of evaluation, each a function of samples, scores or weights."""
