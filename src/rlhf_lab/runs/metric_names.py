"""The names of metrics.jsonl, validation.jsonl and evals.jsonl, with unit and meaning.

A name that ends in * stands for all that begin so. tests/runs/test_metric_names.py compares the
table with what runs write.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Required

from typing_extensions import TypedDict

from rlhf_lab.runs.schema import Amount, Count

SHARE, TOKENS, SECONDS = "share, 0 to 1", "tokens", "s"
VIRTUAL = "virtual s"
NATS_TOKEN, NATS_SEQUENCE, SCORE = "nats a token", "nats a sequence", "score"
# Share of the tokens above which a correction leaves most of a round out.
ZEROED, MOSTLY = "correction/zeroed", 0.5
# Rounds without anything to train on after which a run, and a table of it, reports so.
TIED, FIRST_ROUNDS = "reward/groups_tied", 3


class Metric(NamedTuple):
    """A column. unit: empty for counts and for names. kind: type of its values, of those that the
    lab reads again."""

    name: str
    unit: str
    about: str
    kind: Any = None


ROUND = tuple(
    Metric(*row)
    for row in (
        ("step", "", "Number of the row; `round` is the same number.", Required[Count]),
        ("round", "", "Number of the round, from 0; round r makes version r + 1."),
        ("rows_kept", SHARE, "Samples of the round that the algorithm gave credit."),
        ("reward/mean", SCORE, "Mean reward of the groups that were trained on.", float),
        ("reward/mean_generated", SCORE, "The same of all groups of the round."),
        ("reward/task/*", SCORE, "Mean reward of each task of a mixture (task=mixture)."),
        ("reward/std", SCORE, "Standard deviation over samples."),
        ("reward/best", SCORE, "Mean over groups of each group's best sample."),
        (TIED, SHARE, "Groups whose samples have one and the same reward."),
        ("sample/length", TOKENS, "Mean length of responses."),
        ("sample/eos_rate", SHARE, "Responses that end with the end token."),
        ("sample/empty_rate", SHARE, "Responses without text."),
        ("sample/offline", SHARE, "Samples of a file of pairs, run.offline_share."),
        ("sample/masked", SHARE, "Samples left out as truncated, run.mask_truncated."),
        (
            "sample/groups_masked",
            SHARE,
            "Groups without two samples to compare, the truncated ones left out.",
        ),
        ("sample/without_rows", "", "Rows left out of a fork's first round, fork.without_rows."),
        ("sample/without_tokens", TOKENS, "Their response tokens."),
        ("sample/version", "", "The oldest version that wrote a sample of the round."),
        ("sample/continued", "", "Samples that more than one version wrote."),
        ("sample/version_span", "rounds", "Newest less oldest version within a sample, mean."),
        ("sample/groups_left_out", "", "Groups that were generated and not chosen (oversample)."),
        ("sample/groups_unscored", "", "Groups that the reward could not score."),
        ("replay/share", SHARE, "Repeated groups among those of a round, run.buffer_rounds."),
        ("replay/uses_*", "rounds", "Earlier rounds that trained on a repeated group."),
        ("replay/age_*", "rounds", "Rounds since the first that trained on it."),
        ("prompts/filtered", SHARE, "Prompts passed over, among those considered, run.prompts."),
        ("prompts/repeated", SHARE, "Prompts of the round that were drawn again (prompts=replay)."),
        ("prompts/repeats", "", "Prompts drawn again so far, each time counted."),
        ("prompts/remembered", "", "Prompts whose pass rate the round knew when it was drawn."),
        ("prompts/pass_rate", SHARE, "Mean pass rate of these."),
        ("recycled/groups", "", "Groups that the round continued, mode.over_provision."),
        ("recycled/groups_due", "", "Those that were as old as mode.max_staleness allows, so that "
         "the round waited for them."),
        ("recycled/groups_left", "", "Groups that the next round goes on with."),
        ("recycled/groups_ahead", "", "Those of them that are complete already."),
        ("recycled/tokens", TOKENS, "Tokens of the trained groups that earlier rounds wrote."),
        ("recycled/share", SHARE, "The same as a share of all tokens of the trained groups."),
        ("recycled/steps", "", "Decode steps of the round: tokens that its longest new part got, "
         "observations included."),
        ("recycled/idle", SHARE, "Decode steps in which a sample of the round had ended already, "
         "over all samples that it began with."),
        ("recycled/length_left", TOKENS, "Mean length so far of the samples that are left; compare "
         "sample/length."),
        ("episode/turns", "", "Actions of an episode, mean; docs/environments.md."),
        ("episode/done", SHARE, "Episodes that their environment ended, and no limit."),
        ("episode/late", SHARE, "Episodes that ended because their environment took too long."),
        ("episode/virtual_seconds_tools", "virtual s", "Waits for observations, mean."),
        ("episode/observed_tokens", TOKENS, "Tokens of observations of an episode, mean."),
        ("episode/lag_first_turn", "rounds", "Age of the version that wrote the first turn, mean."),
        ("episode/lag_last_turn", "rounds", "The same of the last turn."),
        ("episode/*", "", "The environment's own numbers, summed over turns, mean over episodes."),
        ("dropped/groups", "", "Groups dropped as older than mode.max_staleness."),
        ("dropped/length", TOKENS, "Mean length of dropped responses."),
        ("dropped/lag_rounds_*", "rounds", "Age of dropped samples: min, mean, max, histogram."),
        ("lag/rounds_*", "rounds", "Age of trained samples: min, mean, max, histogram."),
        ("lag/updates_*", "updates", "The same counted in optimizer updates."),
        ("kl/sampled_reference_k1", NATS_SEQUENCE, "KL from the writer of a sample to SFT, or "
         "to the teacher (algo=distill).", float),
        ("kl/behavior_policy_k1", NATS_TOKEN, "KL from the writer to the policy, estimator k1."),
        ("kl/behavior_policy_k3", NATS_TOKEN, "The same by the estimator k3, never negative."),
        ("kl/policy_reference_k1", NATS_TOKEN, "KL from the policy to the reference, k1."),
        ("kl/policy_reference_k3", NATS_TOKEN, "The same by k3."),
        ("ratio/mean", "", "Token ratio of the policy over the writer; 1 is on-policy."),
        ("ratio/max", "", "The largest token ratio."),
        ("ratio/clipped", SHARE, "Tokens that the loss clipped."),
        ("ratio/ess", SHARE, "Effective sample size over tokens; 1 is on-policy."),
        ("ratio/ess_sequences", SHARE, "Effective sample size over whole responses."),
        ("correction/weight", "", "Mean weight that `correction=` gives a token."),
        (ZEROED, SHARE, "Tokens whose weight is 0."),
        ("correction/mismatch", "", "Mean ratio of trainer to generator at the weights that wrote "
         "(correction=split)."),
        ("correction/mismatch_bounded", SHARE, "Tokens whose mismatch is outside its interval."),
        ("correction/staleness", "", "Mean ratio of the policy at the round's start, or of the "
         "policy, to the writer (correction=split)."),
        ("correction/staleness_bounded", SHARE, "Tokens whose staleness is above its cap."),
        ("gap/mismatch_*", NATS_TOKEN, "Generator against trainer, same weights; *_ratio_max: "
         "the largest ratio."),
        ("gap/staleness_*", NATS_TOKEN, "Weights that wrote against those at the round's start."),
        ("gap/drift_*", NATS_TOKEN, "Weights at the round's start against those at its end."),
        ("by_turn/lag", "rounds", "Age of the version that began each turn of episodes, mean: a "
         "mapping from the turn's number, from 1; turns from 32 on are one."),
        ("by_turn/count", "", "How many turns each of these means is of."),
        ("by_lag/*", "as the metric", "The metric of that name for the rows of each lag, "
         "a mapping from lag in updates to value; of gap/*, the lag before the round's first."),
        ("update/loss", "", "Mean loss over the updates of the round."),
        ("update/entropy", NATS_TOKEN, "Mean entropy of the policy over response tokens."),
        ("update/learning_rate", "", "Mean learning rate over the updates of the round."),
        ("update/grad_norm", "", "Norm of the policy's gradient before clipping."),
        ("update/value_grad_norm", "", "The same of the value model."),
        ("update/gradient_cosine", "-1 to 1", "Cosine of the policy's gradients of consecutive "
         "updates, optim.gradient_cosine."),
        ("update/gradient_projected", SHARE, "Updates whose gradient was above "
         "optim.max_gradient_cosine, so that a part of it was taken away."),
        ("update/adapters_kept", SHARE, "Weights changed by adapters (model.lora_rank) that the "
         "generator's dtype does not round back; of large matrices, of some rows."),
        ("update/changed_share", SHARE, "Weights of the policy that the round changed, "
         "tracker.changed_share."),
        ("update/changed_share_bfloat16", SHARE, "Those that change by over 1e-5 as bfloat16."),
        ("update/dpo/margin", "nats", "Mean margin of preferred over rejected samples."),
        ("update/dpo/accuracy", SHARE, "Pairs whose preferred sample has the higher margin."),
        ("update/ppo/value_error", "score squared", "Loss of the value model."),
        ("update/cispo/weights_clipped", SHARE, "Tokens whose ratio CISPO clipped."),
        ("update/vcpo/ratios_capped", SHARE, "Responses whose ratio VCPO capped."),
        ("algo/kl_coef", "", "KL coefficient where the algorithm adapts it."),
        ("algo/return_range", "score", "Average range of returns, run.return_scaling=percentile."),
        ("update/mdpo/kl_to_round", NATS_TOKEN, "KL of the policy to that of the round's start."),
        ("seconds/wall", SECONDS, "Wall-clock since the start.", Amount),
        ("seconds/device", "device-seconds", "Wall-clock times devices held.", Amount),
        ("seconds/generate", SECONDS, "Sum over generators: writing samples."),
        ("seconds/score", SECONDS, "Sum over generators: rewards."),
        ("seconds/take", SECONDS, "The trainer's time within the request for samples."),
        ("seconds/reference", SECONDS, "Reading rows: reference log-probs, values."),
        ("seconds/update", SECONDS, "Forward, backward, optimizer."),
        ("seconds/train", SECONDS, "seconds/reference plus seconds/update."),
        ("seconds/wait", SECONDS, "The trainer waited for samples (background generation).",
         Amount),
        ("seconds/generator_wait", SECONDS, "Generators waited, summed over them."),
        ("seconds/probe", SECONDS, "Measuring the three gaps."),
        ("seconds/sync", SECONDS, "Handing new weights to generators."),
        ("seconds/track", SECONDS, "Writing metrics."),
        ("seconds/save", SECONDS, "Saving weights of versions."),
        ("seconds/checkpoint", SECONDS, "Saving checkpoints."),
        ("seconds/other", SECONDS, "Wall-clock of the trainer that no phase accounts for."),
        ("seconds/lost", SECONDS, "Work repeated after interruptions."),
        ("virtual_seconds/wall", VIRTUAL, "Virtual time when the round's version was published.",
         Amount),
        ("virtual_seconds/train", VIRTUAL, "Training, this round included.", Amount),
        ("virtual_seconds/sync", VIRTUAL, "Handing versions over, in the trainer's lane.", Amount),
        ("virtual_seconds/wait", VIRTUAL, "The trainer waited for samples."),
        ("virtual_seconds/generate", VIRTUAL, "Sum over generators: decoding and reading."),
        ("virtual_seconds/load", VIRTUAL, "Sum over generators: taking versions over."),
        ("virtual_seconds/generator_wait", VIRTUAL, "Sum over generators: neither of both."),
        ("virtual_seconds/tool_wait", VIRTUAL, "The part of it in which all that a generator has "
         "begun waits for tools."),
        ("virtual/decoded_tokens", TOKENS, "Virtual tokens that generators have decoded."),
        ("virtual/lost_tokens", TOKENS, "Those that failures of generators took."),
        ("virtual/failures", "", "Failures of generators so far."),
        ("total/rounds", "", "Rounds so far.", Count),
        ("total/updates", "", "Optimizer updates so far.", Count),
        ("total/updates_empty", "", "Updates without a row that had credit: nothing applied."),
        ("total/prompts", "", "Prompts so far.", Count),
        ("total/completions", "", "Completions so far.", Count),
        ("total/flops", "FLOPs", "Estimate for generation, scoring, reading and training.", Amount),
        ("total/generated_tokens", TOKENS, "Response tokens of the rounds that were taken.", Count),
        ("total/prefill_tokens", TOKENS, "Tokens that generators read: prompts, and where turns or "
         "segments begin all that stands before."),
        ("total/trained_tokens", TOKENS, "Tokens read by updates, prompts and observations "
         "included.", Count),
        ("total/reference_tokens", TOKENS, "Tokens read by the reference model."),
        ("total/reread_tokens", TOKENS, "Tokens read again by the policy at the round's start, "
         "or by the version that wrote them."),
        ("total/gradient_tokens", TOKENS, "Tokens of backward passes by response, algo=vcpo."),
        ("total/value_tokens", TOKENS, "Tokens read by the value model."),
        ("total/scored_tokens", TOKENS, "Tokens read by reward models."),
        ("total/kept_tokens", TOKENS, "Generated tokens that were trained on."),
        ("total/tied_tokens", TOKENS, "Generated tokens without credit, or masked as truncated."),
        ("total/left_out_tokens", TOKENS, "Generated tokens of groups that were not chosen."),
        ("total/unscored_tokens", TOKENS, "Generated tokens of groups without a reward."),
        ("total/replayed_tokens", TOKENS, "Response tokens of repeated groups, run.buffer_rounds."),
        ("total/dropped_tokens", TOKENS, "Generated tokens dropped as too old."),
        ("total/observed_tokens", TOKENS, "Tokens that environments wrote between turns."),
        ("total/offline_tokens", TOKENS, "Tokens from a fixed set, which nobody generated."),
        ("total/unscored_groups", "", "Groups without a reward so far."),
        ("total/dropped_groups", "", "Groups dropped as too old so far."),
        ("total/*", "", "Counts that a reward or judge reports, such as requests and failures."),
        ("timing/generated_tokens", TOKENS, "All tokens generated, those in flight included."),
        ("timing/in_flight_tokens", TOKENS, "Tokens generated and not yet taken."),
        ("timing/generator_restarts", "", "Generators that were started again after a failure."),
        ("timing/peak_*", "bytes", "Peak memory: resident, and allocated on the GPU."),
        ("timing/generator_sync_seconds", SECONDS, "vLLM: taking over a version's weights."),
        ("generator/proof_gap_*", NATS_TOKEN, "vLLM: proof that weights have moved."),
        ("generator/batch_*", "", "vLLM: what the batch's composition changes in log-probs."),
    )
)  # fmt: skip

EVALUATION = tuple(
    Metric(*row)
    for row in (
        ("version", "", "The version of the weights that is judged; 0 is SFT.", Required[Count]),
        ("validate", "", "Which validation of validation.jsonl this is.", str),
        ("gold/win_rate", SHARE, "Prompts whose sample beats the reference for the gold judge; "
         "ties count half. *_low, *_high: Wilson's 95% interval over prompts.", float | None),
        ("gold/win_rate_*", SHARE, "Bounds; `length_controlled` corrects for length."),
        ("gold/tie_rate", SHARE, "Prompts that the judge calls a tie."),
        ("gold/mean", SCORE, "Mean gold score of samples.", float | None),
        ("gold/reference_mean", SCORE, "Mean gold score of references."),
        ("proxy/mean", SCORE, "Mean score of the reward that training saw.", float | None),
        ("proxy/reference_mean", SCORE, "The same of references."),
        ("proxy/win_rate", SHARE, "Samples that beat the reference for the proxy."),
        ("proxy/prompts_unscored", "", "Prompts that the proxy could not score."),
        ("proxy/*", "", "Counts that the proxy reports, such as requests and failures."),
        ("gap/win_rate", "share, -1 to 1", "Proxy's win-rate less gold's: over-optimisation."),
        ("gap/proxy_gold", "standard deviations", "Standardised margin of the proxy less gold's."),
        ("gap/rank_correlation", "-1 to 1", "Spearman's, of proxy and gold margins."),
        ("judge/agreement", SHARE, "Prompts on which both orders of a comparison agree."),
        ("judge/*", "", "Bounds, and counts that the judge reports."),
        ("accuracy/mean", SHARE, "Right answers, where the task has a rule."),
        ("accuracy/mean_*", SHARE, "Its 95% bounds over prompts."),
        ("task/*", "", "Of each task of a mixture: mean gold score, win-rate, accuracy, bounds."),
        ("pass/at_*", SHARE, "Prompts with a right answer among k samples, and bounds."),
        ("majority/at_*", SHARE, "Prompts whose most frequent answer of k is right, and bounds."),
        ("sample/length", TOKENS, "Mean length of responses."),
        ("sample/eos_rate", SHARE, "Responses that end with the end token."),
        ("episode/*", "", "Means over episodes: as in metrics.jsonl."),
        ("stage/sft_loss", "nats a token", "Held-out loss of the SFT that the run started from."),
        ("stage/proxy_accuracy", SHARE, "Held-out accuracy of its proxies, their mean."),
        ("kl/sft_k1", NATS_SEQUENCE, "KL from the judged version to SFT."),
        ("kl/sft_k3", NATS_SEQUENCE, "The same by the estimator k3."),
        ("ppl/sft_response", "", "Perplexity of responses under SFT."),
        ("ppl/sft_paper", "", "The same as the paper's code counts it, over all tokens."),
        ("eval/prompts", "", "Prompts that were judged.", Count),
        ("eval/prompts_unjudged", "", "Prompts that the judge could not judge."),
        ("eval/samples", "", "Samples per prompt."),
        ("eval/split", "", "The split that prompts come from.", str),
        ("eval/options", "", "The evaluation's name: `quick`, `full`.", str),
        ("eval/digest", "", "Of the weights and of the options that decide the row."),
        ("eval/generated_tokens", TOKENS, "Tokens that the evaluation generated."),
        ("timing/seconds", SECONDS, "What the evaluation took.", Amount),
        ("timing/samples_per_second", "samples a second", "Its speed."),
    )
)  # fmt: skip


def described(name: str, table: tuple[Metric, ...]) -> Metric | None:
    """The row of a name: its own, or the longest one with a star; None if there is none."""
    own = [row for row in table if row.name == name]
    stars = [row for row in table if row.name.endswith("*") and name.startswith(row.name[:-1])]
    return max(own or stars, key=lambda row: len(row.name), default=None)


def row_type(table: tuple[Metric, ...]) -> Any:
    """The type of a row: it may have further columns, and older rows lack some."""
    make: Any = TypedDict
    return make("Row", {row.name: row.kind for row in table if row.kind}, total=False)


def reference() -> str:
    lines = ["# Metrics", ""]
    for title, file, table in (
        ("Rounds", "metrics.jsonl", ROUND),
        ("Evaluations", "evals.jsonl and validation.jsonl", EVALUATION),
    ):
        lines += [f"## {title}", "", f"Columns of {file}.", ""]
        lines += ["| name | unit | meaning |", "|---|---|---|"]
        lines += [f"| `{row.name}` | {row.unit} | {row.about} |" for row in table]
        lines.append("")
    return "\n".join(lines)
