"""Statistics of a few training seeds: pure functions of arrays with frozen results.

Shapes: S seeds, T tasks, N scores of all tasks, F points of a grid, P prompts, C conditions,
R repetitions of a bootstrap, M numbers estimated at once. See docs/statistics.md.
"""
