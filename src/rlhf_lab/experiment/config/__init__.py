"""The config of a run: its schema, the options of its groups, and plugins."""
