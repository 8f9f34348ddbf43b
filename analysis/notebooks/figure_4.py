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
# # Figure 4: losses under off-policyness
#
# Online DPO bears old samples best, PPO is best at N = 1, and best-of-2 and RLOO lose most
# (arXiv:2410.18252, figure 4).
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
view.figure("fig4_losses", runs)

# %%
view.table("results", runs, TableOptions(("gold/win_rate", "kl/sft_k1")))

# %%
view.answer("Which algorithm is the most robust?", runs)
