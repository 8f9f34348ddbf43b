"""Samples of a weight version, on time: modes, the staleness budget, executors and the pipeline."""
