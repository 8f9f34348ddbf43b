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
# # Scale
#
# Do larger policies bear more off-policyness? Do larger reward models? The paper (figure 5)
# answers yes to the first and no to the second: with a larger reward model, there is less drift
# at equal win-rate.
#
# The numbers are those of the tracked benchmark, unless `RLHF_LAB_TABLES` names other ones: saved
# tables, a folder of runs, or any other source of [tables](../../docs/results.md).
# `view.tables("runs/mine")` reads runs of your own.

# %%
from rlhf_lab_analysis.notebooks import view
from rlhf_lab_analysis.publication_tables.options import TableOptions

runs = view.of_sweeps(view.tables(), "policy_scale", "reward_scale")
view.summary(runs)

# %% [markdown]
# The tables are pandas data frames: `runs.runs` has a row for each run, `runs.versions` for each
# judged version, `runs.points` for each recorded round.

# %%
df = runs.runs
ends = ["final/gold/win_rate", "final/kl/sft_k1", "x/updates"]
df.groupby("condition")[ends].mean().head(8).round(3)

# %% [markdown]
# What to look for is whether the ends of large N come closer to those of N = 1 as models grow.

# %%
view.figures("policy_scale", runs)

# %%
view.figures("reward_scale", runs)

# %% [markdown]
# Policies of other sizes begin at other win-rates, so that losses are compared, not levels.

# %%
view.table("sft", runs)

# %%
view.table("differences", runs, TableOptions(metrics=("gold/win_rate",), baseline="N=1"))

# %%
view.answer("Are larger models more robust to off-policy data?", runs)
