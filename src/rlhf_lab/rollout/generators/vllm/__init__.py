"""See docs/generation.md for what lives here; plugin.py alone imports vLLM when it is loaded."""
