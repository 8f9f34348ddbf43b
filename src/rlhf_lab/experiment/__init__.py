"""A Config becomes one live run: checks, construction, preparation, training and evaluation."""
