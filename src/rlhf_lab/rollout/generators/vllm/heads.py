"""A check of what vLLM's attention on a CPU supports, before the first sample fails."""

from __future__ import annotations

from rlhf_lab.types.errors import UserError


def require_head_size(folder: str) -> None:
    """Refuse the policy whose config is in a folder if vLLM has no kernel for its heads here."""
    from vllm.platforms import current_platform

    if not current_platform.is_cpu():
        return  # other platforms look for themselves, when they choose among their backends
    from transformers import AutoConfig
    from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend

    config = AutoConfig.from_pretrained(folder)
    width, heads = config.hidden_size, config.num_attention_heads
    size = getattr(config, "head_dim", None) or width // heads
    sizes = CPUAttentionBackend.get_supported_head_sizes()
    if size not in sizes:
        fitting = [str(width // known) for known in sizes if width % known == 0]
        others = f"model.num_heads={' or '.join(fitting)}" if fitting else "another model"
        raise UserError(
            f"model.hidden_size={width} with model.num_heads={heads}: heads of {size}, and vLLM's "
            f"attention on a CPU has kernels for {', '.join(map(str, sizes))} only; pass {others}, "
            "or generator=hf"
        )
