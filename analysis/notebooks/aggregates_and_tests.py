# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # Aggregates and tests: a tour of the library
#
# Every number of a figure or a table is one call of [statistics](../../docs/statistics.md)
# away. The steps are always the same: tables, then conditions over seeds, then numbers.
#
# The numbers are those of the tracked benchmark, unless `RLHF_LAB_TABLES` names other ones: saved
# tables, a folder of runs, or any other source of [tables](../../docs/results.md).
# `view.tables("runs/mine")` reads runs of your own.

# %%
import numpy as np
from rliable import metrics
from scipy import stats

from rlhf_lab_analysis.comparison.selection import cells
from rlhf_lab_analysis.notebooks import view
from rlhf_lab_analysis.statistics.aggregates import aggregates
from rlhf_lab_analysis.statistics.contrasts import in_pairs, p_value
from rlhf_lab_analysis.statistics.decisions import Shows
from rlhf_lab_analysis.statistics.equivalence import equivalence, points
from rlhf_lab_analysis.statistics.power import Aim, least
from rlhf_lab_analysis.statistics.results import Method, Options

runs = view.tables()
view.summary(runs)

# %% [markdown]
# The tables are pandas data frames: `runs.runs` has a row for each run, `runs.versions` for each
# judged version, `runs.points` for each recorded round.

# %%
df = runs.runs
ends = ["final/gold/win_rate", "final/kl/sft_k1", "x/updates"]
df.groupby("condition")[ends].mean().head(8).round(3)

# %% [markdown]
# `cells` gives the conditions with the runs that count, and a line for each run that does not.

# %%
selection = cells(runs)
compared = [cell for cell in selection.cells if len(cell.seeds) > 1 and cell.has("gold/win_rate")]
view.lines(f"{len(compared)} conditions of two seeds or more", *selection.left_out)

# %% [markdown]
# The score of a seed is a win-rate over prompts. An interval is over seeds, never over prompts.
# With few seeds Student's t holds what it claims, where a bootstrap does not.

# %%
options = Options(method=Method.t)
scores = {
    f"{one.sweep} {one.condition}": {one.env: [*one.scores("gold/win_rate").values()]}
    for one in compared
}
means = aggregates(scores, options)
view.lines(*(f"{name}: {found['mean'].text()}" for name, found in means.items()))

# %% [markdown]
# Two conditions that share seeds are compared in pairs; here the first two of PPO in one sweep.
# The p by flipped signs is scipy's.

# %%
ppo = view.of_sweeps(runs, "off_policy_ladder").only(algo="ppo")
first, second = cells(ppo).cells[:2]
contrast = in_pairs(first.scores("gold/win_rate"), second.scores("gold/win_rate"))
(by_seed,) = contrast.parts
by_signs = stats.permutation_test(
    (by_seed,), np.mean, permutation_type="samples", n_resamples=9999, rng=0
).pvalue
view.lines(
    first.condition,
    second.condition,
    f"{len(by_seed)} pairs: p = {p_value(contrast):.3f} by t, {by_signs:.3f} by flipped signs",
)

# %% [markdown]
# Are they equal within 2 points? Which is better in a run, and how often? How many seeds
# would decide it?

# %%
verdict = equivalence(contrast, points(2))
view.lines(verdict.text, verdict.difference.text(), *verdict.warnings)

# %%
both = [np.array([[*one.scores("gold/win_rate").values()]]).T for one in (first, second)]
chance = metrics.probability_of_improvement(*both)
view.lines(f"a run of the first has the higher win-rate with probability {chance:.2f}")

# %%
spread = float(np.std(by_seed, ddof=1))
plan = "no seed differs from another: there is no spread to plan with"
if spread:
    enough = least(Aim(Shows.equal, 0.02), spread, wanted=0.8, conditions=1)
    plan = f"{enough} seeds show with power 0.8 that two equal conditions are within 2 points"
view.lines(plan)

# %% [markdown]
# Its runs as a table. All tables of all runs, in LaTeX, Markdown and CSV:
# `rlhf-lab publication-tables RUNS --out FOLDER`.

# %%
view.table("runs", ppo)
