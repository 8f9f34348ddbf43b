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
# # Table 6: win-rate, length and time of sync and async
#
# At 8B on No Robots both have a win-rate of 57.2%, at 230 and 142 in compute time
# (arXiv:2410.18252, table 6). Runs of `sweeps/chats` are read first; without any, those of
# `sync_async`, as in the tracked benchmark.
#
# The numbers are those of the tracked benchmark, unless `RLHF_LAB_TABLES` names other ones: saved
# tables, a folder of runs, or any other source of [tables](../../docs/results.md). A view whose
# runs are not in these tables names the sweep that makes them.

# %%
from rlhf_lab_analysis.notebooks import view
from rlhf_lab_analysis.publication_tables.options import TableOptions

runs = view.of_first_sweep(view.tables(), "chats", "sync_async")
view.about(runs)

# %%
view.summary(runs)

# %%
view.ends(runs)

# %%
view.table("differences", runs, TableOptions(("win_rate", "wall_clock"), baseline="mode=sync"))

# %%
view.table("results", runs, TableOptions(("gold/win_rate", "sample/length")))

# %%
view.answer("What does async cost, and what does it buy?", runs)
