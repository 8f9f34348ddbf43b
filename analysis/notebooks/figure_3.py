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
# # Figure 3: off-policyness of PPO
#
# More minibatches N a round, so older samples: win-rate and drift both fall slower, on one curve
# of win-rate over KL (arXiv:2410.18252, figure 3; N = 1 to 64, PPO at 410M).
#
# The numbers are those of the tracked benchmark, unless `RLHF_LAB_TABLES` names other ones: saved
# tables, a folder of runs, or any other source of [tables](../../docs/results.md). A view whose
# runs are not in these tables names the sweep that makes them.

# %%
from rlhf_lab_analysis.notebooks import view
from rlhf_lab_analysis.publication_tables.options import TableOptions

runs = view.of_sweeps(view.tables(), "off_policy_ladder")
view.summary(runs)

# %%
view.ends(runs)

# %%
ppo = view.only(runs, "algo", "ppo")
view.figure("fig3_off_policy_ladder", ppo)

# %%
view.table("differences", ppo, TableOptions(("gold/win_rate",), baseline="N=1"))

# %%
view.answer("How robust is each algorithm to off-policy data?", runs)
