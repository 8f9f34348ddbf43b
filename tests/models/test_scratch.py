"""A config.json of sizes that cannot be is refused in one line before a model is begun."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from rlhf_lab.models.causal_lm import policy_shape
from rlhf_lab.models.folders import weight_bytes
from rlhf_lab.models.options import PretrainedModel
from rlhf_lab.types.errors import UserError
from tests.models.test_loading import folder as folder
from tests.models.test_loading import load, refuse


def damaged(folder: Path, **changes: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"num_hidden_layers": 10**9}, "num_hidden_layers=1000000000, which needs"),
        ({"num_hidden_layers": 0}, "num_hidden_layers=0, which must be a whole number"),
        ({"num_hidden_layers": "2"}, "num_hidden_layers=2, which must be a whole number"),
        ({"num_hidden_layers": None}, "Validation error for field 'num_hidden_layers': TypeError"),
        ({"num_attention_heads": 0}, "num_attention_heads=0, which must be"),
        ({"num_attention_heads": 3}, "could not be loaded .*multiple of"),
        ({"num_key_value_heads": 0}, "num_key_value_heads=0, which must be"),
        ({"vocab_size": -5}, "vocab_size=-5, which must be"),
        ({"hidden_size": 10**30}, "hidden_size=10+, which must be"),
        ({"hidden_size": [1]}, r"hidden_size=\[1\], which must be"),
        ({"text_config": {"hidden_size": -1}}, "hidden_size=-1, which must be"),
        ({"dtype": "float99"}, "dtype=float99, which is no dtype of torch"),
        ({"dtype": 7}, "dtype=7, which is no dtype of torch"),
        ({"rms_norm_eps": float("nan")}, "config.json has rms_norm_eps=nan"),
        ({"rms_norm_eps": "x"}, "Validation error for field 'rms_norm_eps'"),
        ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, "requires optimum"),
        ({"quantization_config": 3}, "could not be loaded"),
        ({"pad_token_id": 10**9}, "could not be loaded .*Padding_idx"),
        ({"layer_types": 3}, "could not be loaded"),
    ],
)
def test_sizes_that_cannot_be_are_refused(
    folder: Path, changes: dict[str, Any], complaint: str
) -> None:
    damaged(folder, **changes)
    refuse(folder, complaint)
    with pytest.raises(UserError) as refused:
        load(folder)
    assert "\n" not in str(refused.value)


def test_a_model_is_not_sketched_by_such_a_config_either(folder: Path) -> None:
    policy_shape(PretrainedModel("x", str(folder)), None)
    damaged(folder, num_hidden_layers=10**9)
    with pytest.raises(UserError, match="num_hidden_layers=1000000000, which needs"):
        policy_shape(PretrainedModel("x", str(folder)), None)


def test_weights_are_counted_once_if_they_are_there_in_two_formats(folder: Path) -> None:
    whole = weight_bytes(str(folder))
    assert whole == os.path.getsize(folder / "model.safetensors")
    (folder / "pytorch_model.bin").write_bytes(b"0" * (whole + 1))
    assert weight_bytes(str(folder)) == whole + 1
    assert weight_bytes("hub/name") == 0
