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
# # Over-optimisation of the proxy
#
# The proxy's reward rises with KL while the gold reward turns back. Does an ensemble of proxies
# (mean, worst, or mean less its spread) turn later? The measured curves are in
# [tldr_nano.md](../../docs/tldr_nano.md).
#
# The numbers are those of the tracked benchmark, unless `RLHF_LAB_TABLES` names other ones: saved
# tables, a folder of runs, or any other source of [tables](../../docs/results.md). A view whose
# runs are not in these tables names the sweep that makes them.

# %%
from rlhf_lab_analysis.notebooks import view
from rlhf_lab_analysis.publication_tables.options import TableOptions

runs = view.of_sweeps(view.tables(), "over_optimisation")
view.summary(runs)

# %%
view.ends(runs)

# %%
view.figure("over_optimisation", runs)

# %%
view.table("differences", runs, TableOptions(("gold/mean",), baseline="reward=reward_model"))
