"""Progress: counts from many threads add up, lines off a terminal."""

from __future__ import annotations

import io
from concurrent.futures import ThreadPoolExecutor

from rich.console import Console

from flows.progress import RunProgress


def test_counts_of_many_threads_add_up() -> None:
    text = io.StringIO()
    with RunProgress(Console(file=text), visible=True, artifact_every_s=None) as progress:
        progress.expect("score", 100)
        progress.expect("score", 100)
        progress.expect("nothing", 0)
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda _: progress.advance("score"), range(200)))
    assert "score: 200 done in" in text.getvalue()
    assert list(progress.seconds) == ["score"]


def test_quiet_means_quiet() -> None:
    text = io.StringIO()
    with RunProgress(Console(file=text), visible=False, artifact_every_s=None) as progress:
        progress.expect("score", 1)
        progress.advance("score")
    assert text.getvalue() == ""


def test_lines_are_said_whole_or_not_at_all() -> None:
    text, line = io.StringIO(), "a line " * 30
    for visible in (True, False):
        RunProgress(Console(file=text), visible=visible).say(line)
    assert text.getvalue() == f"{line}\n"
