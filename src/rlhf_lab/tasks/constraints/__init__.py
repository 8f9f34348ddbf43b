"""Constraints on a text that a program can check, and how to write a text that keeps them."""
