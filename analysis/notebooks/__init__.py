"""Notebooks as scripts, a notebook for each question, and what their cells show."""
