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
# # Figure 2: who works when
#
# Sync takes turns; async generates the next round while it trains on this one (arXiv:2410.18252,
# figure 2, a scheme). Here the seconds of real runs are drawn.
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
view.figure("fig2_timelines", runs)

# %%
view.table("differences", runs, TableOptions(("wall_clock",), baseline="mode=sync"))
