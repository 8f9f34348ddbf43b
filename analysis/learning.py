"""The name of analysis.speed.train_algorithms until the next release."""

from analysis.renamed import run_as

if __name__ == "__main__":
    run_as("analysis.speed.train_algorithms")
