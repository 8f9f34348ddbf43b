# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Table 1: policies before training
#
# Win-rate and perplexity of the SFT policies (arXiv:2410.18252, table 1: 25.4%, 26.8% and 35.2%
# at 410M, 1B and 2.8B). The win-rate is version 0 of each run.
#
# The numbers are those of the tracked benchmark, unless `RLHF_LAB_TABLES` names other ones: saved
# tables, a folder of runs, or any other source of [tables](../../docs/results.md). A view whose
# runs are not in these tables names the sweep that makes them.

# %%
from rlhf_lab_analysis.notebooks import view

runs = view.tables()
view.summary(runs)

# %%
view.ends(runs)

# %%
view.table("sft", runs)
