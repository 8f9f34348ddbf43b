"""Rules of the virtual cluster (mode=virtual)."""

from __future__ import annotations

from dataclasses import fields

from rlhf_lab.experiment.config import Config
from rlhf_lab.rollout.cluster.options import ClusterOptions
from rlhf_lab.rollout.mode import WhenStale
from rlhf_lab.types.errors import UserError, refuse_first_of


def check_cluster(config: Config) -> None:
    """A virtual cluster must be used, fit the chunks, and write what it trains on by itself."""
    if not config.mode.is_virtual:
        refuse_unused(config.cluster, config.mode.name)
        return
    cluster, generator = config.cluster, config.generator
    rows = min(generator.chunk_groups, config.run.groups_generated) * config.run.group_size
    refusals = (
        (
            rows > cluster.rows,
            f"cluster.sequences={cluster.sequences}: a generator cannot write the {rows} samples "
            f"of a chunk at the same time, of {cluster.row_scale:g} sequences each; lower "
            f"generator.chunk_groups={generator.chunk_groups}, or raise cluster.sequences",
        ),
        (
            not generator.draws_samples or bool(config.run.offline_share),
            "fixed answers, which no generator writes: pass generator=hf and run.offline_share=0",
        ),
        (
            bool(config.mode.segment_tokens),
            f"mode.segment_tokens={config.mode.segment_tokens}: the cluster's clock gives a "
            "sample its versions; pass mode.segment_tokens=0 and cluster.weight_update=interrupt",
        ),
        (
            config.run.remembers_prompts,
            f"run.prompts={config.run.prompts.value}: rounds mix the prompts of several rounds; "
            "pass run.prompts=stream",
        ),
        (
            cluster.follows_versions and generator.has_own_kernels,
            f"cluster.weight_update={cluster.weight_update.value} and generator={generator.name}: "
            "it cannot take new weights at a given token; pass generator=hf, or "
            "cluster.weight_update=drain",
        ),
        (
            cluster.follows_versions and config.mode.when_stale is WhenStale.drop,
            f"cluster.weight_update={cluster.weight_update.value} and mode.when_stale=drop: "
            "weights would be needed that are older than any sample may be; pass "
            "mode.when_stale=wait, or cluster.weight_update=drain",
        ),
    )
    refuse_first_of(refusals, "mode=virtual with")


def refuse_unused(cluster: ClusterOptions, mode: str) -> None:
    """Refuse a cluster that nothing runs on."""
    default = ClusterOptions()
    for column in fields(cluster):
        value = getattr(cluster, column.name)
        if value != getattr(default, column.name):
            raise UserError(
                f"cluster.{column.name}={getattr(value, 'value', value)} with mode={mode}: only "
                "mode=virtual runs on the virtual cluster; pass mode=virtual, or leave it out"
            )
