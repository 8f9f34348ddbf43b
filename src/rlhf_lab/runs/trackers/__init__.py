"""Where metrics go: the JSONL record, the console, and mirrors such as wandb and TensorBoard."""
