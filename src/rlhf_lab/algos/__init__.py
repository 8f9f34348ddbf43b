"""How rewards become credit, and credit a loss: pure functions, a family of algorithms a file."""
