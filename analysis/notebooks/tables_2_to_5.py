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
# # Tables 2 to 5: hyper-parameters
#
# The settings of all runs, an algorithm a column, from the configs that runs keep
# (arXiv:2410.18252, tables 2 to 5).
#
# The numbers are those of the tracked benchmark, unless `RLHF_LAB_TABLES` names other ones: saved
# tables, a folder of runs, or any other source of [tables](../../docs/results.md). A view whose
# runs are not in these tables names the sweep that makes them.

# %%
from rlhf_lab_analysis.notebooks import view

runs = view.of_sweeps(view.tables(), "off_policy_ladder")
view.summary(runs)

# %%
view.ends(runs)

# %%
view.table("settings", runs)
