"""Small seeded networks of the kind that splice models are, written as a model repository, and their plain forward."""

from __future__ import annotations

import json

import numpy as np
import torch
from safetensors.torch import save_file
from torch.nn import functional


def network(name, dilation=9):
    """Two residual blocks of different dilation with a skip to the end, as SpliceAI's, and a head."""
    layers = [{"name": "stem", "kind": "convolution", "inputs": ["sequence"], "kernel": 1, "channels": 6}]
    layers.append({"name": "skip0", "kind": "convolution", "inputs": ["stem"], "kernel": 1, "channels": 6})
    stream, skip = "stem", "skip0"
    for block, (kernel, step) in enumerate(((5, 1), (3, dilation), (5, 5)), 1):
        source = stream
        for half in "ab":
            layers += [
                {"name": f"norm{block}{half}", "kind": "scaling", "inputs": [source]},
                {
                    "name": f"relu{block}{half}",
                    "kind": "activation",
                    "inputs": [f"norm{block}{half}"],
                    "function": "relu",
                },
                {
                    "name": f"conv{block}{half}",
                    "kind": "convolution",
                    "inputs": [f"relu{block}{half}"],
                    "kernel": kernel,
                    "dilation": step,
                    "channels": 6,
                },
            ]
            source = f"conv{block}{half}"
        layers.append({"name": f"add{block}", "kind": "sum", "inputs": [source, stream]})
        layers.append(
            {"name": f"side{block}", "kind": "convolution", "inputs": [f"add{block}"], "kernel": 1, "channels": 6}
        )
        layers.append({"name": f"skip{block}", "kind": "sum", "inputs": [skip, f"side{block}"]})
        stream, skip = f"add{block}", f"skip{block}"
    layers.append({"name": "head", "kind": "convolution", "inputs": [skip], "kernel": 1, "channels": 3})
    layers.append({"name": "odds", "kind": "activation", "inputs": ["head"], "function": "softmax"})
    return {"name": name, "layers": layers}


def document(count=2, dilation=9):
    """``network.json`` of so many networks; they look 24 + 2 * `dilation` positions to either side."""
    return {
        "format": "cohortflow-convolution-1",
        "alphabet": "ACGT",
        "outputs": ["neither", "acceptor", "donor"],
        "networks": [network(str(number), dilation) for number in range(1, count + 1)],
    }


def weights(content, seed=5):
    """Seeded tensors for a document, large enough that an edit moves the output."""
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for one in content["networks"]:
        channels = {"sequence": len(content["alphabet"])}
        for layer in one["layers"]:
            width = layer.get("channels", channels[layer["inputs"][0]])
            channels[layer["name"]] = width
            what = f"{one['name']}.{layer['name']}"
            if layer["kind"] == "convolution":
                taps = (width, channels[layer["inputs"][0]], layer["kernel"])
                spread = 1.5 / (taps[1] * taps[2]) ** 0.5
                tensors[f"{what}.weight"] = torch.randn(taps, generator=generator) * spread
                tensors[f"{what}.bias"] = torch.randn(width, generator=generator) * 0.2
            elif layer["kind"] == "scaling":
                tensors[f"{what}.scale"] = 1 + 0.3 * torch.randn(width, generator=generator)
                tensors[f"{what}.shift"] = 0.2 * torch.randn(width, generator=generator)
    return tensors


def write_model(repository, *, name="splice", count=2, config="max_batch_size: 64", content=None, tensors=None):
    """Writes a model of the convolution backend into a repository."""
    content = document(count) if content is None else content
    folder = repository / name / "1"
    folder.mkdir(parents=True)
    (folder.parent / "config.pbtxt").write_text(f'backend: "convolution" {config}')
    (folder / "network.json").write_text(json.dumps(content))
    save_file(weights(content) if tensors is None else tensors, folder / "model.safetensors")
    return content


def padded_forward(content, tensors, tokens, context):
    """What the networks say of a sequence as a published tool computes it: every layer padded, the ends cropped off.

    Args:
        content: The document.
        tensors: Its weights.
        tokens: uint8 [positions].
        context: Positions cropped off at either end.

    Returns:
        float32 [positions - 2 * context, outputs].
    """
    letters = np.arange(len(content["alphabet"]))
    one_hot = torch.from_numpy((tokens[None, :] == letters[:, None]).astype(np.float32))[None]
    total = 0
    for one in content["networks"]:
        values = {"sequence": one_hot}
        for layer in one["layers"]:
            first = values[layer["inputs"][0]]
            what = f"{one['name']}.{layer['name']}"
            if layer["kind"] == "convolution":
                dilation = layer.get("dilation", 1)
                value = functional.conv1d(
                    first,
                    tensors[f"{what}.weight"],
                    tensors[f"{what}.bias"],
                    dilation=dilation,
                    padding=layer["kernel"] // 2 * dilation,
                )
            elif layer["kind"] == "scaling":
                value = first * tensors[f"{what}.scale"][:, None] + tensors[f"{what}.shift"][:, None]
            elif layer["kind"] == "sum":
                value = sum(values[name] for name in layer["inputs"])
            else:
                value = torch.relu(first) if layer["function"] == "relu" else torch.softmax(first, dim=1)
            values[layer["name"]] = value
        total = total + value
    mean = (total / len(content["networks"]))[0].T.numpy()
    return mean[context : len(mean) - context]
