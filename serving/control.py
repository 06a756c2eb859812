"""What is loaded, reloaded and unloaded, while requests run."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from serving.change import Change, closing_order
from serving.drain import Drain
from serving.errors import InvalidArgumentError, ModelLoadError, NotFoundError, ServingError, UnavailableError
from serving.model import Served, Services
from serving.overrides import read_overridden
from serving.repository import folder_state, list_models, read_model
from serving.roster import UNLOADED, IndexEntry, Offers, Roster

log = logging.getLogger(__name__)

ControlMode = Literal["none", "explicit", "poll"]


class ModelControl:
    """Changes what a server serves: one change at a time, each whole or not at all.

    Args:
        repository: The model repository.
        mode: Who may change it after the start: nobody, `load` and `unload`, or the files in the repository.
        models: Names of the models to load at the start; None: all, or with "explicit" none.
        threads: CPU threads of an execution.
    """

    def __init__(self, repository: Path, mode: ControlMode, models: Sequence[str] | None, threads: int) -> None:
        self.mode = mode
        self._repository = repository
        self._models = models
        self._threads = threads
        self._roster = Roster()
        self._drain = Drain()
        self._lock = threading.Lock()
        self._services: Services | None = None
        # What the folders of models looked like when they were last loaded, whether or not that went well.
        self._states: dict[str, object] = {}

    @property
    def offers(self) -> Offers:
        """What is served, by name."""
        return self._roster.offers

    def start(self, services: Services) -> None:
        """Loads the models to begin with.

        With "poll" a model that cannot be loaded is told by the index, and is tried again when its files change.

        Raises:
            ModelLoadError: A model cannot be served; nothing is.
            NotFoundError: A model to begin with is not in the repository.
        """
        self._services = services
        self._roster.open()
        if self.mode == "poll":
            self.poll()
            return
        names = self._models
        if names is None:
            names = [] if self.mode == "explicit" else list_models(self._repository)
        with self._lock:
            self._change(names, lambda change: self._load_all(change, names))

    def load(self, name: str, config: bytes | None, files: Mapping[str, bytes] | None) -> None:
        """Loads or reloads a model: see `ModelServer.load`."""
        self._check_explicit("load", name)
        with self._lock:
            self._change([name], lambda change: change.load(read_overridden(self._repository, name, config, files)))

    def unload(self, name: str, version: int | None, *, with_dependents: bool) -> None:
        """Unloads a model or one version of it: see `ModelServer.unload`."""
        self._check_explicit("unload", name)
        with self._lock:
            self._unload(name, version, with_dependents=with_dependents)

    def poll(self) -> None:
        """Looks at the repository: loads what is new or has changed, unloads what is gone."""
        with self._lock:
            there = [name for name in list_models(self._repository) if self._models is None or name in self._models]
            states = {name: folder_state(self._repository / name) for name in there}
            changed = [name for name in there if states[name] != self._states.get(name)]
            if changed:
                # What could not be loaded may have waited for what has changed.
                changed = [name for name in there if name in changed or self._roster.has_failed(name)]
            gone = [name for name in self._states if name not in states]
            self._states = dict(states)
            # Together, so that an ensemble and the step that it needs changed come at one time; apart where that fails.
            if changed and not self._tries(changed) and len(changed) > 1:
                for name in changed:
                    self._tries([name])
            # Ensembles before the steps that they are made of.
            for name in gone:
                self._roster.forget(name)
            leaving = [self.offers[name] for name in gone if name in self.offers]
            order = closing_order(served for offer in leaving for served in offer.versions.values())
            for name in dict.fromkeys(served.name for served in order):
                self._tries_unload(name)

    def index(self) -> list[IndexEntry]:
        """Every version that is known, and every model of the repository."""
        names = list_models(self._repository) if self._repository.is_dir() else []
        return self._roster.index(names)

    def close(self, limit_s: float) -> None:
        """Finishes what is in flight and unloads everything; fails what is still in flight after `limit_s` seconds."""
        ends_s = time.monotonic() + limit_s
        self._services = None
        # A load that is at work finds the roster closed, and gives up what it made.
        offers = self._roster.close()
        self._states = {}
        for served in closing_order(served for offer in offers.values() for served in offer.versions.values()):
            served.close(max(ends_s - time.monotonic(), 0))
        self._drain.finish(max(ends_s - time.monotonic(), 0))

    def _load_all(self, change: Change, names: Iterable[str]) -> None:
        for name in names:
            change.load(read_model(self._repository, name))

    def _tries(self, names: Sequence[str]) -> bool:
        try:
            self._change(names, lambda change: self._load_all(change, names))
        except ServingError as error:
            log.warning("poll: %s", error.message)
            return False
        return True

    def _tries_unload(self, name: str) -> None:
        try:
            self._unload(name, None, with_dependents=False)
        except ServingError as error:
            self._roster.note_failure(name, f"its folder is gone, but {error.message}")

    def _unload(self, name: str, version: int | None, *, with_dependents: bool) -> None:
        try:
            self._change([], lambda change: change.unload(name, version, with_dependents=with_dependents))
        except ModelLoadError as error:
            raise InvalidArgumentError(f"unload of model {name!r}: {error.message}", field=error.field) from error

    def _change(self, names: Sequence[str], act: Callable[[Change], None]) -> None:
        """Makes a change, and publishes it if it is whole; notes why not in the index lines of `names`.

        Raises:
            ServingError: It failed; what was served still is.
        """
        if self._services is None:
            raise UnavailableError("the model server was closed")
        begun: list[tuple[str, int]] = []

        def begin(name: str, version: int) -> None:
            begun.append((name, version))
            self._roster.note(name, version, "LOADING")

        change = Change(self._repository, self._threads, self._services, self.offers, begin)
        try:
            act(change)
            change.settle()
            change.drop_spare()
            self._roster.publish(change.offers)
        except BaseException as error:
            change.abandon()
            reason = error.message if isinstance(error, ServingError) else f"{type(error).__name__}: {error}"
            for name, version in begun:
                self._roster.note(name, version, "UNAVAILABLE", reason)
            if not isinstance(error, NotFoundError | InvalidArgumentError):
                for name in {*names, *(name for name, _ in begun)}:
                    self._roster.note_failure(name, reason)
            raise
        for name in {*names, *(name for name, _ in begun)}:
            self._roster.note_failure(name, None)
        for served in change.replaced:
            self._roster.note(served.name, served.version, "UNLOADING", "requests in flight are finished")
        self._drain.close_later(change.replaced, self._note_closed)

    def _note_closed(self, served: Served) -> None:
        self._roster.note(served.name, served.version, "UNAVAILABLE", UNLOADED)

    def _check_explicit(self, what: str, name: str) -> None:
        if self._services is None:
            raise UnavailableError("the model server is not running: start() it, or use it as a context manager")
        if self.mode != "explicit":
            raise UnavailableError(
                f"explicit {what} of model {name!r} is not allowed: the server's control mode is {self.mode!r}"
            )
