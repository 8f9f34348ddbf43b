"""A child whose vLLM loads weights as it does by itself: a tied head keeps its packed copy."""

from rlhf_lab.rollout.generators.vllm import child, plugin

if __name__ == "__main__":
    plugin.repack_tied_heads = lambda model: None
    child.main()
