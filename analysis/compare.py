"""The name of analysis.studies.compare_runs until the next release."""

from analysis.renamed import run_as

if __name__ == "__main__":
    run_as("analysis.studies.compare_runs")
