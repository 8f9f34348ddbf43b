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
# # Does a baseline below the mean help when samples are stale?
#
# The runs of `rlhf-lab sweep sweeps/own.yaml`, read from `runs/own`, or from what
# `RLHF_LAB_TABLES` names.

# %%
import os
from pathlib import Path

from rlhf_lab_analysis.notebooks import view

runs = view.tables(os.environ.get(view.VARIABLE) or "runs/own")
view.summary(runs)

# %% [markdown]
# Every number is in a data frame: `runs.runs` has a row for each run, `runs.versions` one for each
# evaluated version, `runs.points` one for each round.

# %%
scores = runs.runs.groupby("condition")["final/gold/mean"].agg(["mean", "std", "count"])
print(scores)

# %%
axes = scores["mean"].plot.barh(xerr=scores["std"], xlabel="share of right answers")
Path("figures").mkdir(exist_ok=True)
axes.figure.savefig("figures/own.png", bbox_inches="tight")
