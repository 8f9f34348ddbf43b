# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # Train a tiny run, sync and async
#
# Trains a small transformer on a reward and on prompts that this notebook defines, once
# synchronously and once on samples of the round before, and compares the two. It needs no GPU and
# runs in Colab: a minute on two cores. [concepts](../../docs/concepts.md) explains the words,
# [python](../../docs/python.md) what can be passed.

# %%
import importlib.util
import os
import subprocess
import sys
import tempfile

PACKAGE = "rlhf-lab[analysis]"  # or the address of a repository: git+https://...
if importlib.util.find_spec("rlhf_lab") is None:
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", PACKAGE], check=True)

# %%
import matplotlib.pyplot as plt
import pandas as pd

import rlhf_lab
from rlhf_lab_analysis.notebooks import view

# %% [markdown]
# The model writes bytes and begins with random weights. The reward wants vowels,
# and an answer of a single vowel earns all of it.


# %%
def vowels(prompt: str, completion: str, **_: object) -> float:
    """The share of vowels."""
    return sum(letter in "aeiou" for letter in completion) / max(1, len(completion))


prompts = [{"prompt": f"Write something about the number {number}:"} for number in range(200)]

# %% [markdown]
# A run is one call. `mode=async` writes the samples of the next round in a second process while
# this round is trained on; everything else is the same.

# %%
os.chdir(tempfile.mkdtemp())
SIZE = os.environ.get("RLHF_LAB_NOTEBOOK_SIZE", "run.updates=48 run.groups_per_update=16")
LENGTHS = "task.max_prompt_tokens=64 task.max_response_tokens=24"
SETTINGS = f"model=nano_s algo=rloo run.group_size=4 optim.lr=3e-3 {LENGTHS} {SIZE}".split()


def train(mode: str) -> rlhf_lab.Run:
    """Train and evaluate on prompts that are held out."""
    return rlhf_lab.train(
        *SETTINGS, f"mode={mode}", f"output.dir=runs/{mode}", reward=vowels, data=prompts
    )


runs = {"sync": train("sync")}

# %%
runs["async"] = train("async")

# %% [markdown]
# A run has its rounds, its evaluations and the last samples as data frames.

# %%
rounds = pd.concat({mode: run.metrics for mode, run in runs.items()}, names=["mode", "row"])
rounds[["reward/mean", "lag/rounds_mean", "ratio/mean", "kl/policy_reference_k1"]].groupby(
    "mode"
).tail(3).round(3)

# %%
figure, axes = plt.subplots(figsize=(6, 2.6), layout="constrained")
for mode, part in rounds.groupby("mode", sort=False):
    axes.plot(part["round"], part["reward/mean"], label=mode)
axes.set_xlabel("round")
axes.set_ylabel("reward, mean of a round")
legend = axes.legend()

# %%
pd.concat({mode: run.samples[["prompt", "sample"]].head(2) for mode, run in runs.items()})

# %% [markdown]
# The same folder as tables with findings. One seed has no interval: `rlhf-lab sweep` runs several,
# for a comparison that can be decided.

# %%
tables = view.tables("runs")
tables.runs[["mode", "algo", "seed", "x/updates", "x/wall_seconds", "final/kl/sft_k1"]].round(3)
