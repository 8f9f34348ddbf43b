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
# # The learning rate's schedule
#
# The published code moves the learning rate once a round and ends at zero. With 256 updates and N
# = 64 there are four rounds, so that a quarter of the updates train at rate zero: N changes the
# rate as well. How much of what is blamed on off-policyness is the schedule?
#
# The numbers are those of the tracked benchmark, unless `RLHF_LAB_TABLES` names other ones: saved
# tables, a folder of runs, or any other source of [tables](../../docs/results.md).
# `view.tables("runs/mine")` reads runs of your own.

# %%
from rlhf_lab_analysis.notebooks import view

runs = view.of_sweeps(view.tables(), "rate_schedule", "off_policy_ladder")
view.summary(runs)

# %% [markdown]
# The tables are pandas data frames: `runs.runs` has a row for each run, `runs.versions` for each
# judged version, `runs.points` for each recorded round.

# %%
df = runs.runs
ends = ["final/gold/win_rate", "final/kl/sft_k1", "x/updates"]
df.groupby("condition")[ends].mean().head(8).round(3)

# %%
view.figures("rate_schedule", runs)

# %%
view.table("results", runs)

# %%
view.table("settings", runs)

# %%
view.answer("How much of the loss is the learning rate's schedule?", runs)
