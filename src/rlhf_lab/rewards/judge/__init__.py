"""`reward=endpoint`: a language model behind an OpenAI-compatible endpoint judges the samples
(LLM as a judge, arXiv:2306.05685).

options -> prompts (a question and the reading of its answer) -> client (one request) -> calls
(cache, concurrency, retries, costs) -> scorer (rewards and comparisons).
"""
