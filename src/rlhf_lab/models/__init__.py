"""Load, build and read language models: policies, reward models, value models, and their inputs."""
