# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # The figures of the paper
#
# Figures 1 to 9 of arXiv:2410.18252 and its GSM8K runs, each with the numbers behind it and the
# verdict on what it shows.
#
# The numbers are those of the tracked benchmark, unless `RLHF_LAB_TABLES` names other ones: saved
# tables, a folder of runs, or any other source of [tables](../../docs/results.md). A figure whose
# runs are not in these tables names the sweep that makes them.

# %%
from rlhf_lab_analysis.notebooks import view
from rlhf_lab_analysis.publication_tables.options import TableOptions

runs = view.tables()
view.summary(runs)

# %%
view.ends(runs)

# %% [markdown]
# ## Figure 1: win-rate against compute
#
# Sync and async online DPO reach the same win-rate, and async is sooner there; the gap grows with
# the policy (25% sooner at 2.8B on four A100).

# %%
sync_async = view.of_sweeps(runs, "sync_async")
view.figure("fig1_win_rate_and_cost", sync_async)

# %%
of_modes = TableOptions(("gold/win_rate", "wall_clock"), baseline="mode=sync")
view.table("differences", sync_async, of_modes)

# %%
view.answer("What does async cost, and what does it buy?", sync_async)

# %% [markdown]
# ## Figure 2: who works when
#
# Sync takes turns; async generates the next round while it trains on this one. The paper has a
# scheme; here the seconds of real runs are drawn.

# %%
view.figure("fig2_timelines", sync_async)

# %% [markdown]
# ## Figure 3: off-policyness of PPO
#
# More minibatches N a round, so older samples: win-rate and drift both fall slower, on one curve
# of win-rate over KL (N = 1 to 64, PPO at 410M).

# %%
ladder = view.of_sweeps(runs, "off_policy_ladder")
ppo = ladder.only(algo="ppo")
view.figure("fig3_off_policy_ladder", ppo)

# %%
of_ages = TableOptions(("gold/win_rate",), baseline="N=1")
view.table("differences", ppo, of_ages)

# %%
view.answer("How robust is each algorithm to off-policy data?", ladder)

# %% [markdown]
# ## Figure 4: losses under off-policyness
#
# Online DPO bears old samples best, PPO is best at N = 1, and best-of-2 and RLOO lose most.

# %%
view.figure("fig4_losses", ladder)

# %%
levels = TableOptions(("gold/win_rate", "kl/sft_k1"))
view.table("results", ladder, levels)

# %%
view.answer("Which algorithm is the most robust?", ladder)

# %% [markdown]
# ## Figure 5: scale of policy and reward model
#
# A larger policy bears more off-policyness; a larger reward model does not, but drifts less at
# equal win-rate.

# %%
scales = view.of_sweeps(runs, "policy_scale", "reward_scale")
view.figure("fig5_policy_scale", scales)

# %%
view.figure("fig5_reward_scale", scales)

# %%
view.table("differences", scales, of_ages)

# %%
view.answer("Are larger models more robust to off-policy data?", scales)

# %% [markdown]
# ## Figure 6: which side waits
#
# Where generation is slower, the trainer has time for T passes; where training is slower, the
# generator has time for K samples. The paper has a scheme; here measured seconds of each T and K
# are laid out as they would be with a generator beside the trainer.

# %%
view.figure("fig6_who_waits", view.of_sweeps(runs, "passes", "samples_per_prompt"))

# %% [markdown]
# ## Figure 7: T passes over a round
#
# With T passes equal win-rates take fewer samples, at more drift.

# %%
passes = view.of_sweeps(runs, "passes")
view.figure("fig7_passes", passes)

# %%
view.table("results", passes, levels)

# %% [markdown]
# ## Figure 8: K samples a prompt
#
# K = 4 in half the steps reaches the win-rate of K = 2 at a fraction of the compute, at more
# drift.

# %%
samples = view.of_sweeps(runs, "samples_per_prompt")
view.figure("fig8_samples", samples)

# %%
view.table("results", samples, levels)

# %%
view.answer("What do more passes or more samples buy?", runs)

# %% [markdown]
# ## Figure 9: reward, drift and time of sync and async
#
# At 8B on No Robots async reaches the reward of sync, sooner and at lower drift. Runs of
# `sweeps/chats` are read first; without any, the same comparison of `sync_async` stands here, as
# in the tracked benchmark.

# %%
chats = view.of_first_sweep(runs, "chats", "sync_async")
view.about(chats)

# %%
view.figure("fig9_reward_and_drift", chats)

# %%
of_rewards = TableOptions(("gold/mean", "kl/sft_k1"), baseline="mode=sync")
view.table("differences", chats, of_rewards)

# %% [markdown]
# ## GSM8K: accuracy against time
#
# Async DPO, PPO and RLOO solve as many problems as sync, about 70% faster, with Rho-1B on GSM8K
# (version 3 of the paper).

# %%
answers = view.of_sweeps(runs, "verified_answers")
view.figure("gsm8k_accuracy", answers)

# %%
view.table("results", answers, TableOptions(("accuracy/mean",)))
