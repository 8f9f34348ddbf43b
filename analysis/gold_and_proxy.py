"""The name of rlhf_lab_analysis.studies.over_optimisation until the next release."""

from rlhf_lab_analysis.renamed import run_as

if __name__ == "__main__":
    run_as("rlhf_lab_analysis.studies.over_optimisation")
