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
# # Train a tiny run, sync and async
#
# Trains a small transformer on sums, once synchronously and once on samples of the round before,
# and compares the two. It needs no GPU and runs in Colab: minutes on two cores.
# [concepts](../../docs/concepts.md) explains the words.

# %%
import importlib.util
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

PACKAGE = "rlhf-lab[analysis]"  # or the address of a repository: git+https://...
if importlib.util.find_spec("rlhf_lab") is None:
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", PACKAGE], check=True)

# %%
import matplotlib.pyplot as plt
import pandas as pd

from rlhf_lab_analysis.notebooks import view

# %% [markdown]
# A run is one command. `mode=async` writes the samples of the next round in a second process while
# this round is trained on; everything else is the same.

# %%
FOLDER = Path(tempfile.mkdtemp())
SIZE = os.environ.get("RLHF_LAB_NOTEBOOK_SIZE", "sft.steps=150 run.updates=48")
SETTINGS = f"task=arithmetic algo=rloo reward=task_rule run.group_size=4 {SIZE}"


def train(mode: str) -> None:
    """Train and evaluate; what the command prints is shown."""
    words = f"pipeline {SETTINGS} mode={mode} output.dir={FOLDER / mode} output.cache={FOLDER}"
    command = [sys.executable, "-m", "rlhf_lab.cli.main", *shlex.split(words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    sys.stdout.write(done.stdout[-1500:] + done.stderr[-1500:])
    done.check_returncode()


train("sync")

# %%
train("async")

# %% [markdown]
# Each round is a row of `metrics.jsonl`, with the reward, the age of the samples
# (`lag/rounds_mean`) and the seconds by phase.

# %%
rounds = pd.concat(
    {mode: pd.read_json(FOLDER / mode / "metrics.jsonl", lines=True) for mode in ("sync", "async")},
    names=["mode", "row"],
)
rounds[["reward/mean", "lag/rounds_mean", "ratio/mean", "kl/policy_reference_k1"]].groupby(
    "mode"
).tail(3).round(3)

# %%
figure, axes = plt.subplots(figsize=(6, 2.6), layout="constrained")
for mode, part in rounds.groupby("mode", sort=False):
    axes.plot(part["round"], part["reward/mean"].rolling(8, min_periods=1).mean(), label=mode)
axes.set_xlabel("round")
axes.set_ylabel("reward, mean of 8 rounds")
legend = axes.legend()

# %% [markdown]
# The same folder as tables with findings. One seed has no interval: add `-m seed=1,2,3` for a
# comparison that can be decided.

# %%
tables = view.tables(str(FOLDER))
tables.runs[["mode", "algo", "seed", "x/updates", "final/accuracy/mean", "final/kl/sft_k1"]].round(
    3
)
