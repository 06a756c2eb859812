"""What an answer depends on besides its inputs, as one digest."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from serving.config import ModelConfig
from serving.padding import MAX_BATCH_TOKENS, MAX_PADDING_RATIO

_OF_BATCHING = (MAX_PADDING_RATIO, MAX_BATCH_TOKENS)


def execution_digest(
    config: ModelConfig,
    files: Mapping[str, str],
    backend: str,
    numerics: Sequence[Mapping[str, str]],
    steps: Sequence[str] = (),
) -> str:
    """Digests everything that decides a model's numbers; the same on every machine with the same installation.

    Names, versions, batching, counts of instances and caching are left out: they change no number, because equal
    rows of a model get equal bytes whatever their batch.

    Args:
        config: The complete configuration.
        files: SHA-256 of every file of the version.
        backend: The backend's library and version.
        numerics: Execution providers and precision of each instance group.
        steps: For an ensemble, the digest of each step's model, in the order of the configuration.

    Returns:
        64 hex digits.
    """
    message = config.message
    value: dict[str, Any] = {
        "files": dict(sorted(files.items())),
        "backend": backend,
        "numerics": sorted({json.dumps(dict(sorted(group.items()))) for group in numerics}),
        "file": message.default_model_filename,
        "inputs": [str(spec) for spec in config.inputs],
        "outputs": [str(spec) for spec in config.outputs],
        "parameters": {key: text for key, text in sorted(config.parameters.items()) if key not in _OF_BATCHING},
        "graph_level": message.optimization.graph.level,
        "steps": [
            {
                "model": digest,
                "inputs": dict(sorted(step.input_map.items())),
                "outputs": dict(sorted(step.output_map.items())),
            }
            for digest, step in zip(steps, message.ensemble_scheduling.step, strict=True)
        ],
    }
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
