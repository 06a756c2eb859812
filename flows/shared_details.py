"""What follows the first line of samples' messages: told once for all samples that share it."""

from __future__ import annotations


class SharedDetails:
    """Collects messages; two contig lists side by side, say, are the same for every sample of one origin."""

    def __init__(self) -> None:
        self._sample_ids: dict[str, list[str]] = {}

    def add(self, sample_id: str, message: str) -> str:
        """Keeps what follows a message's first line; returns that line."""
        headline, _, rest = message.partition("\n")
        if rest:
            self._sample_ids.setdefault(rest, []).append(sample_id)
        return headline

    def lines(self) -> list[str]:
        """Every detail once, below the samples that it is about."""
        return [f"details of {', '.join(ids)}:\n{rest}" for rest, ids in self._sample_ids.items()]
