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


class Mlp(torch.nn.Module):
    """y [10] of x [64]."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = torch.nn.Linear(64, 256)
        self.outside = torch.nn.Linear(256, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.outside(torch.nn.functional.gelu(self.inside(x)))


class Convolution(torch.nn.Module):
    """y [24] of x [8, 50]."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = torch.nn.Conv1d(8, 24, 5, padding=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.convolution(x)).mean(dim=2)


class Recurrence(torch.nn.Module):
    """y [48] of x [20, 12]."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = torch.nn.GRU(12, 48, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.cell(x)[0][:, -1]


class Attention(torch.nn.Module):
    """y [32] of x [24, 32]."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = torch.nn.MultiheadAttention(32, 4, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.attention(x, x, x, need_weights=False)[0].mean(dim=1)
