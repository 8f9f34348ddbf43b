"""Search for hyperparameters: a space, successive halving, a study on disk, a test, a report."""
