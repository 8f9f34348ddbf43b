"""A worker whose vLLM loads weights as it does by itself: a tied head keeps its packed copy."""

from rlhf_lab.rollout.generators.vllm import plugin

plugin.repack_tied_heads = lambda model: None


class Stale:
    """vLLM imports the module of a worker's extension in the worker's process."""
