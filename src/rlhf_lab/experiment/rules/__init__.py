"""What a config may not be: checks between options before the first step."""
