"""How rewards become credit, and credit a loss: pure functions, one small file an algorithm."""
