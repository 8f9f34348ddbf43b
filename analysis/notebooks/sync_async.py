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
# # Sync against async
#
# Is training on samples of the round before as good, and how much sooner is it done? The paper
# (figures 1 and 9, table 6) finds equal win-rates, 25% sooner at 2.8B and 40% at 8B.
#
# The numbers are those of the tracked benchmark, unless `RLHF_LAB_TABLES` names other ones: saved
# tables, a folder of runs, or any other source of [tables](../../docs/results.md).
# `view.tables("runs/mine")` reads runs of your own.

# %%
from rlhf_lab_analysis.notebooks import view
from rlhf_lab_analysis.publication_tables.options import TableOptions

runs = view.of_sweeps(view.tables(), "sync_async")
view.summary(runs)

# %% [markdown]
# The tables are pandas data frames: `runs.runs` has a row for each run, `runs.versions` for each
# judged version, `runs.points` for each recorded round.

# %%
df = runs.runs
ends = ["final/gold/win_rate", "final/kl/sft_k1", "x/updates"]
df.groupby("condition")[ends].mean().head(8).round(3)

# %% [markdown]
# Wall-clock is that of training; evaluation is left out of it. Seconds of other machines are no
# comparison: findings name them.

# %%
view.figures("sync_async", runs)

# %% [markdown]
# A p above 0.05 would be no sign of equality. Two one-sided tests ask whether the difference lies
# within a margin that was stated beforehand: 2 points of win-rate.

# %%
view.table("scales", runs, TableOptions(margin=0.02))

# %% [markdown]
# Time to a target counts runs that never get there as later than their end.

# %%
view.table("times", runs, TableOptions(baseline="mode=sync", axes=("x/wall_seconds",)))

# %%
view.answer("What does async cost, and what does it buy?", runs)
