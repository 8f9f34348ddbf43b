"""Tables with intervals as LaTeX, Markdown and CSV: `tables -> Written`."""
