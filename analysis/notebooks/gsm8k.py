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
# # GSM8K: accuracy against time
#
# Async DPO, PPO and RLOO solve as many problems as sync, about 70% faster, with Rho-1B on GSM8K
# (arXiv:2410.18252, version 3).
#
# The numbers are those of the tracked benchmark, unless `RLHF_LAB_TABLES` names other ones: saved
# tables, a folder of runs, or any other source of [tables](../../docs/results.md). A view whose
# runs are not in these tables names the sweep that makes them.

# %%
from rlhf_lab_analysis.notebooks import view
from rlhf_lab_analysis.publication_tables.options import TableOptions

runs = view.of_sweeps(view.tables(), "verified_answers")
view.summary(runs)

# %%
view.ends(runs)

# %%
view.figure("gsm8k_accuracy", runs)

# %%
view.table("results", runs, TableOptions(("accuracy/mean",)))
