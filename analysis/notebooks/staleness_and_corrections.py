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
# # Staleness and corrections
#
# How many rounds old may samples be, and does an off-policy correction help? The paper has one
# round and no correction; the sweeps go further. `mode=lagged` has the staleness of async without
# its concurrency, with the same bits.
#
# The numbers are those of the tracked benchmark, unless `RLHF_LAB_TABLES` names other ones: saved
# tables, a folder of runs, or any other source of [tables](../../docs/results.md).
# `view.tables("runs/mine")` reads runs of your own.

# %%
from rlhf_lab_analysis.notebooks import view
from rlhf_lab_analysis.publication_tables.options import TableOptions

runs = view.of_sweeps(view.tables(), "staleness", "corrections", "lag_distribution")
view.summary(runs)

# %% [markdown]
# The tables are pandas data frames: `runs.runs` has a row for each run, `runs.versions` for each
# judged version, `runs.points` for each recorded round.

# %%
df = runs.runs
ends = ["final/gold/win_rate", "final/kl/sft_k1", "x/updates"]
df.groupby("condition")[ends].mean().head(8).round(3)

# %%
view.figures("staleness", view.of_sweeps(runs, "staleness"))

# %%
view.figures("corrections", view.of_sweeps(runs, "corrections"))

# %%
view.figures("lag_distribution", view.of_sweeps(runs, "lag_distribution"))

# %% [markdown]
# Every S beside the fresh samples of the same sweep. Several comparisons are corrected together
# (Holm).

# %%
view.table("differences", runs, TableOptions(metrics=("gold/win_rate", "kl/sft_k1")))

# %%
view.answer("How stale may samples be?", runs)
