"""A number for a sample: reward models, functions, endpoints, judges, and combinations of them."""
