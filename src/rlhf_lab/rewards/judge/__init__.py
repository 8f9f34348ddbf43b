"""`reward=endpoint`: a language model behind an OpenAI-compatible endpoint judges the samples
(LLM as a judge, arXiv:2306.05685).

options (with the questions and the reading of answers) -> calls (requests, cache, concurrency,
retries, costs) -> scorer (rewards and comparisons).
"""
