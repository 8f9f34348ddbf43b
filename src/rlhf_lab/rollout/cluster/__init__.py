"""A virtual cluster: a discrete-event model of generators, queue and trainer."""
