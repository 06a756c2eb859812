"""The page that Prometheus scrapes."""

from __future__ import annotations

from prometheus_client import REGISTRY
from prometheus_client.exposition import choose_encoder


def render_page(accept: str) -> tuple[str, bytes]:
    """Everything this process counts.

    Args:
        accept: The scraper's ``Accept`` header: OpenMetrics where it asks for that, else Prometheus's own text.

    Returns:
        The page's content type, and the page.
    """
    encode, content_type = choose_encoder(accept)
    return content_type, encode(REGISTRY)
