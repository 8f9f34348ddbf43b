"""The name of analysis.publication_tables until the next release."""

from analysis.renamed import run_as

if __name__ == "__main__":
    run_as("analysis.publication_tables")
