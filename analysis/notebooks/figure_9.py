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
# # Figure 9: reward, drift and time of sync and async
#
# At 8B on No Robots async reaches the reward of sync, sooner and at lower drift
# (arXiv:2410.18252, figure 9). Runs of `sweeps/chats` are read first; without any, the same
# comparison of `sync_async` stands here, as in the tracked benchmark. The title of each part is
# that of its runs.
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
view.figure("fig9_reward_and_drift", runs)

# %%
view.table("differences", runs, TableOptions(("gold/mean", "kl/sft_k1"), baseline="mode=sync"))

# %%
view.answer("What does async cost, and what does it buy?", runs)
