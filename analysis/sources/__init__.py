"""One reader for each tracker and file format: every run becomes the same kind of record."""
