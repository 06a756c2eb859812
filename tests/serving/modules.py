"""Torch modules that tests serve by name."""

from __future__ import annotations

import torch


class Embedder(torch.nn.Module):
    """embedding [3] and mean [1] of x [4]."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.inside = torch.nn.Linear(4, width)
        self.outside = torch.nn.Linear(width, 3)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        embedding = self.outside(torch.relu(self.inside(x)))
        return {"embedding": embedding, "mean": embedding.mean(dim=1, keepdim=True)}


def seeded(width: int = 32) -> Embedder:
    """The module with weights of a fixed seed."""
    torch.manual_seed(7)
    return Embedder(width).eval()
