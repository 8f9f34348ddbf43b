"""What is made of a run for others: exports, cards, benchmarks."""
