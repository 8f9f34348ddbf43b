"""Claims as data: what a paper states, the runs that bear on it, and the test that decides it."""
