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
# # Figure 6: which side waits
#
# Where generation is slower, the trainer has time for T passes; where training is slower, the
# generator has time for K samples (arXiv:2410.18252, figure 6, a scheme). Here measured seconds
# of each T and K are laid out as they would be with a generator beside the trainer.
#
# The numbers are those of the tracked benchmark, unless `RLHF_LAB_TABLES` names other ones: saved
# tables, a folder of runs, or any other source of [tables](../../docs/results.md). A view whose
# runs are not in these tables names the sweep that makes them.

# %%
from rlhf_lab_analysis.notebooks import view
from rlhf_lab_analysis.publication_tables.options import TableOptions

runs = view.of_sweeps(view.tables(), "passes", "samples_per_prompt")
view.summary(runs)

# %%
view.ends(runs)

# %%
view.figure("fig6_who_waits", runs)

# %%
view.table("differences", runs, TableOptions(("wall_clock", "completions")))
