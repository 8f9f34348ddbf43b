"""What a run is doing now, read from its files: state, panels on a terminal, plain lines."""
