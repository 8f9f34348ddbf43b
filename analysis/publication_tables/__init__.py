"""Tables of results with intervals, captions and provenance, as LaTeX, Markdown and CSV."""
