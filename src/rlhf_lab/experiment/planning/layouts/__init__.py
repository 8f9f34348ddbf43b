"""Predictions from sizes alone: memory and seconds of a run on named GPUs, for a layout or all."""
