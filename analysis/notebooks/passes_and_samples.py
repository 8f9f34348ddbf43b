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
# # Passes and samples
#
# Where generation is slower, T passes over a round use its samples more than once. Where training
# is slower, K = 4 completions of a prompt and half the steps cost the learner less. What do both
# cost in drift? The paper (figures 7 and 8) finds as good win-rates for less, at a higher KL.
#
# The numbers are those of the tracked benchmark, unless `RLHF_LAB_TABLES` names other ones: saved
# tables, a folder of runs, or any other source of [tables](../../docs/results.md).
# `view.tables("runs/mine")` reads runs of your own.

# %%
from rlhf_lab_analysis.notebooks import view
from rlhf_lab_analysis.publication_tables.options import TableOptions

runs = view.of_sweeps(view.tables(), "passes", "samples_per_prompt")
view.summary(runs)

# %% [markdown]
# The tables are pandas data frames: `runs.runs` has a row for each run, `runs.versions` for each
# judged version, `runs.points` for each recorded round.

# %%
df = runs.runs
ends = ["final/gold/win_rate", "final/kl/sft_k1", "x/updates"]
df.groupby("condition")[ends].mean().head(8).round(3)

# %%
view.figures("passes", view.of_sweeps(runs, "passes"))

# %%
view.figures("samples_per_prompt", view.of_sweeps(runs, "samples_per_prompt"))

# %% [markdown]
# What each condition cost: with T passes the completions fall, with K = 4 the updates.

# %%
view.table("costs", runs, TableOptions(axes=("x/completions", "x/updates", "x/flops")))

# %%
view.table("differences", runs, TableOptions(metrics=("gold/win_rate", "kl/sft_k1")))

# %%
view.answer("What do more passes or more samples buy?", runs)
