"""What writes responses: the lean decode loop, transformers, pairs of a table, and vLLM."""
