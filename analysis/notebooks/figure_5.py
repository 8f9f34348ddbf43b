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
# # Figure 5: scale of policy and reward model
#
# A larger policy bears more off-policyness; a larger reward model does not, but drifts less at
# equal win-rate (arXiv:2410.18252, figure 5, left and right).
#
# The numbers are those of the tracked benchmark, unless `RLHF_LAB_TABLES` names other ones: saved
# tables, a folder of runs, or any other source of [tables](../../docs/results.md). A view whose
# runs are not in these tables names the sweep that makes them.

# %%
from rlhf_lab_analysis.notebooks import view
from rlhf_lab_analysis.publication_tables.options import TableOptions

runs = view.of_sweeps(view.tables(), "policy_scale", "reward_scale")
view.summary(runs)

# %%
view.ends(runs)

# %%
view.figure("fig5_policy_scale", runs)

# %%
view.figure("fig5_reward_scale", runs)

# %%
view.table("differences", runs, TableOptions(("gold/win_rate",), baseline="N=1"))

# %%
view.answer("Are larger models more robust to off-policy data?", runs)
