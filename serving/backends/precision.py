"""How exactly a model computes: the parameters ``precision`` and ``allow_tf32`` of its configuration.

parameters { key: "precision" value { string_value: "bf16" } }     # fp32 (default), bf16, fp16
parameters { key: "allow_tf32" value { string_value: "true" } }    # false by default: 32 bits are 32 bits
"""

from __future__ import annotations

from serving.config import ModelConfig
from serving.errors import ModelLoadError

PRECISIONS = ("fp32", "bf16", "fp16")


def read_precision(config: ModelConfig) -> str:
    """The precision a model computes in.

    Raises:
        ModelLoadError: It is none of `PRECISIONS`.
    """
    precision = config.parameters.get("precision", "fp32")
    if precision not in PRECISIONS:
        raise ModelLoadError(
            f"model {config.name!r}: parameter 'precision' is {precision!r}, not one of {', '.join(PRECISIONS)}",
            field="parameters.precision",
        )
    return precision


def allows_tf32(config: ModelConfig) -> bool:
    """Whether a GPU may round 32-bit numbers to 19 bits before it multiplies them.

    Raises:
        ModelLoadError: The parameter is neither true nor false.
    """
    said = config.parameters.get("allow_tf32", "false").lower()
    if said not in ("true", "false"):
        raise ModelLoadError(
            f"model {config.name!r}: parameter 'allow_tf32' is {said!r}, not true or false",
            field="parameters.allow_tf32",
        )
    return said == "true"
