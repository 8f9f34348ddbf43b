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
# # Off-policy ladder
#
# How fast does quality fall when a round of generation holds N updates, and for which loss? The
# paper (arXiv:2410.18252, figures 3 and 4) finds that all N slow down along one curve of win-rate
# against KL, and that online DPO is the most robust.
#
# The numbers are those of the tracked benchmark, unless `RLHF_LAB_TABLES` names other ones: saved
# tables, a folder of runs, or any other source of [tables](../../docs/results.md).
# `view.tables("runs/mine")` reads runs of your own.

# %%
from rlhf_lab_analysis.notebooks import view
from rlhf_lab_analysis.publication_tables.options import TableOptions

runs = view.of_sweeps(view.tables(), "off_policy_ladder")
view.summary(runs)

# %% [markdown]
# The tables are pandas data frames: `runs.runs` has a row for each run, `runs.versions` for each
# judged version, `runs.points` for each recorded round.

# %%
df = runs.runs
ends = ["final/gold/win_rate", "final/kl/sft_k1", "x/updates"]
df.groupby("condition")[ends].mean().head(8).round(3)

# %% [markdown]
# Bands and bars are intervals over seeds. Equal colours are equal conditions in all figures.

# %%
view.figures("off_policy_ladder", runs)

# %% [markdown]
# The same as numbers. Version 0 is the policy after SFT; what follows is the end of training, and
# each N beside N = 1 of the same algorithm, in pairs of seeds.

# %%
view.table("sft", runs)

# %%
view.table("results", runs)

# %%
view.table(
    "differences", runs, TableOptions(metrics=("gold/win_rate", "kl/sft_k1"), baseline="N=1")
)

# %% [markdown]
# What follows for the claims of the paper. A claim that an interval cannot decide is not decided.

# %%
view.answer("How robust is each algorithm to off-policy data?", runs)
