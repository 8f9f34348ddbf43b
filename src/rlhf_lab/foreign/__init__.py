"""The boundary between a run and code that is not the lab's: see boundary.py."""
