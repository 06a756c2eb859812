"""Progress of a run: a bar per stage in the terminal, an artifact in the Prefect UI."""

from __future__ import annotations

import threading
import time
from contextvars import ContextVar
from typing import Any
from uuid import UUID

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

_LINE_EVERY_S = 10.0


class RunProgress:
    """Counts what is done, stage by stage; safe to use from many threads.

    On a terminal each stage is a bar; elsewhere a line tells now and then how far a stage is, and in the end how long
    each took. The artifact is brought up to date every `artifact_every_s` seconds, and in the end; None: there is none.
    """

    def __init__(self, console: Console, *, visible: bool, artifact_every_s: float | None = 2.0) -> None:
        self._console = console
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            disable=not (visible and console.is_terminal),
        )
        self._visible = visible
        self._lines = visible and not console.is_terminal
        self._lock = threading.Lock()
        self._bar_of: dict[str, TaskID] = {}
        self._num_done: dict[str, int] = {}
        self._num_total: dict[str, int] = {}
        self._began: dict[str, float] = {}
        self._line_at = time.monotonic()
        self._artifact: UUID | None = None
        self._artifact_every_s = artifact_every_s
        self._artifact_at = time.monotonic()
        self.seconds: dict[str, float] = {}

    def __enter__(self) -> RunProgress:
        self._bars.start()
        return self

    def __exit__(self, kind: object, *details: object) -> None:
        self._bars.stop()
        if kind is None and self._artifact_every_s is not None:
            # Units that a failed sample left undone are not waited for: the run is over.
            self._show_in_ui(share=100.0)
        for stage, seconds in self.seconds.items() if self._lines else ():
            self._console.print(f"{stage}: {self._num_done[stage]} done in {seconds:.1f} s")

    def say(self, line: str) -> None:
        """Shows a line of text."""
        if self._visible:
            self._console.print(line, highlight=False, soft_wrap=True)

    def expect(self, stage: str, count: int) -> None:
        """Adds `count` units to a stage, which begins with the first."""
        if count == 0:
            return
        with self._lock:
            if stage not in self._num_total:
                self._bar_of[stage] = self._bars.add_task(stage, total=0)
                self._num_done[stage] = self._num_total[stage] = 0
                self._began[stage] = time.monotonic()
            self._num_total[stage] += count
            self._bars.update(self._bar_of[stage], total=self._num_total[stage])

    def advance(self, stage: str, count: int = 1) -> None:
        """Counts units of a stage as done."""
        with self._lock:
            self._num_done[stage] += count
            self._bars.update(self._bar_of[stage], advance=count)
            done, total = self._num_done[stage], self._num_total[stage]
            if done == total:
                self.seconds[stage] = round(time.monotonic() - self._began[stage], 3)
            elif self._lines and time.monotonic() - self._line_at >= _LINE_EVERY_S:
                self._line_at = time.monotonic()
                self._console.print(f"{stage}: {done} of {total}")
            every_s = self._artifact_every_s
            due = every_s is not None and time.monotonic() - self._artifact_at >= every_s
            if due:
                self._artifact_at = time.monotonic()
        if due:
            self._show_in_ui(share=100.0 * sum(self._num_done.values()) / max(1, sum(self._num_total.values())))

    def caution(self, text: str) -> None:
        """Tells what the user should know of, also where no progress is shown."""
        self._console.print(f"caution: {text}", markup=False, highlight=False, soft_wrap=True)

    def _show_in_ui(self, *, share: float) -> None:
        """Updates the artifact of the flow run; a server that does not answer stops nothing."""
        from prefect.artifacts import create_progress_artifact, update_progress_artifact

        text = ", ".join(f"{stage} {self._num_done[stage]}/{self._num_total[stage]}" for stage in self._num_total)
        try:
            if self._artifact is None:
                created: Any = create_progress_artifact(progress=share, key="cohort-progress", description=text)
                self._artifact = created
            else:
                update_progress_artifact(artifact_id=self._artifact, progress=share, description=text)
        except Exception as error:
            self._console.log(f"progress is not shown in the UI: {error}") if self._lines else None


_CURRENT: ContextVar[RunProgress] = ContextVar("progress")


def current_progress() -> RunProgress:
    """The progress of the run that the calling thread works for."""
    return _CURRENT.get()


def set_current_progress(progress: RunProgress) -> None:
    """Makes `progress` that of this thread and of the Prefect tasks it submits."""
    _CURRENT.set(progress)
