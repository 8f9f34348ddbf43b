"""The parts of a run, made from its config."""
