"""Prompts, references and the rules that judge responses."""
