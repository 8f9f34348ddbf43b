# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # The tables of the paper
#
# Tables 1 to 6 of arXiv:2410.18252.
#
# The numbers are those of the tracked benchmark, unless `RLHF_LAB_TABLES` names other ones: saved
# tables, a folder of runs, or any other source of [tables](../../docs/results.md).

# %%
from rlhf_lab_analysis.notebooks import view
from rlhf_lab_analysis.publication_tables.options import TableOptions

runs = view.tables()
view.ends(runs)

# %% [markdown]
# ## Table 1: policies before training
#
# Win-rate and perplexity of the SFT policies (25.4%, 26.8% and 35.2% at 410M, 1B and 2.8B). The
# win-rate is version 0 of each run.

# %%
view.table("sft", runs)

# %% [markdown]
# ## Tables 2 to 5: hyper-parameters
#
# The settings of all runs, an algorithm a column, from the configs that runs keep.

# %%
view.table("settings", view.of_sweeps(runs, "off_policy_ladder"))

# %% [markdown]
# ## Table 6: win-rate, length and time of sync and async
#
# At 8B on No Robots both have a win-rate of 57.2%, at 230 and 142 in compute time. Runs of
# `sweeps/chats` are read first; without any, those of `sync_async`, as in the tracked benchmark.

# %%
chats = view.of_first_sweep(runs, "chats", "sync_async")
view.about(chats)

# %%
of_modes = TableOptions(("gold/win_rate", "wall_clock"), baseline="mode=sync")
view.table("differences", chats, of_modes)

# %%
view.table("results", chats, TableOptions(("gold/win_rate", "sample/length")))
