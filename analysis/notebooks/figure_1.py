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
# # Figure 1: win-rate against compute
#
# Sync and async online DPO reach the same win-rate, and async is sooner there; the gap grows with
# the policy (arXiv:2410.18252, figure 1: 25% sooner at 2.8B on four A100).
#
# The numbers are those of the tracked benchmark, unless `RLHF_LAB_TABLES` names other ones: saved
# tables, a folder of runs, or any other source of [tables](../../docs/results.md). A view whose
# runs are not in these tables names the sweep that makes them.

# %%
from rlhf_lab_analysis.notebooks import view
from rlhf_lab_analysis.publication_tables.options import TableOptions

runs = view.of_sweeps(view.tables(), "sync_async")
view.summary(runs)

# %%
view.ends(runs)

# %%
view.figure("fig1_win_rate_and_cost", runs)

# %%
view.table("differences", runs, TableOptions(("win_rate", "wall_clock"), baseline="mode=sync"))

# %%
view.answer("What does async cost, and what does it buy?", runs)
