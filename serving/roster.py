"""Which versions of which models are served, and the state of all others."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from serving.errors import NotFoundError, UnavailableError
from serving.model import Served
from serving.repository import ModelFolder
from serving.routing import Router

State = Literal["READY", "UNAVAILABLE", "LOADING", "UNLOADING"]

UNLOADED = "unloaded"


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """A line of the repository's index: `version` is "" for a model of which no version is known."""

    name: str
    version: str
    state: State
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Offer:
    """What is served under one name.

    Attributes:
        folder: Where it was loaded from.
        versions: At least one version.
        is_asked: Whether it was asked for by its name, not only loaded as the step of an ensemble.
        router: Splits the requests that name no version; None: the highest version answers them.
    """

    folder: ModelFolder
    versions: Mapping[int, Served]
    is_asked: bool
    router: Router | None = None

    @property
    def main(self) -> int:
        """The version that answers where no other is asked for."""
        return max(self.versions) if self.router is None else self.router.main

    def find(self, version: int | None) -> Served:
        """One version; None: the main one.

        Raises:
            NotFoundError: It is not served.
        """
        served = self.versions.get(self.main if version is None else version)
        if served is None:
            raise NotFoundError(
                f"model {self.folder.name!r} has no version {version} served; there are "
                f"{', '.join(map(str, sorted(self.versions)))}"
            )
        return served


Offers = Mapping[str, Offer]


def find_served(offers: Offers, name: str, version: int | None) -> Served:
    """One version of one model; None: its main one.

    Raises:
        NotFoundError: It is not served; the message says what is.
    """
    return find_offer(offers, name).find(version)


def find_offer(offers: Offers, name: str) -> Offer:
    """What is served under a name.

    Raises:
        NotFoundError: Nothing is.
    """
    offer = offers.get(name)
    if offer is None:
        raise NotFoundError(f"no model {name!r} is served; there are {', '.join(sorted(offers)) or 'none'}")
    return offer


class Roster:
    """What is served, replaced as a whole, so that a request sees one state of it; and what the index tells.

    Attributes:
        offers: What is served, by name; never changed, but replaced.
    """

    def __init__(self) -> None:
        self.offers: Offers = {}
        self._is_open = False
        self._lock = threading.Lock()
        # Of versions that are not served, and what went wrong when a model was last loaded.
        self._states: dict[tuple[str, int | None], tuple[State, str]] = {}
        self._failures: dict[str, str] = {}

    def open(self) -> None:
        """From now on something may be served."""
        with self._lock:
            self._is_open = True

    def close(self) -> Offers:
        """Serves nothing any more; gives what was served."""
        with self._lock:
            self._is_open = False
            offers, self.offers = self.offers, {}
            self._states, self._failures = {}, {}
            return offers

    def publish(self, offers: Offers) -> None:
        """Replaces what is served.

        Raises:
            UnavailableError: The server was closed in the meantime.
        """
        with self._lock:
            if not self._is_open:
                raise UnavailableError("the model server was closed")
            self.offers = offers
            for name, offer in offers.items():
                for version in (None, *offer.versions):
                    self._states.pop((name, version), None)

    def note(self, name: str, version: int | None, state: State, reason: str = "") -> None:
        """Notes the state of a version that is not served, or of a model of which no version is known (None)."""
        with self._lock:
            offer = self.offers.get(name)
            if offer is None or (version is not None and version not in offer.versions):
                self._states[(name, version)] = (state, reason)

    def forget(self, name: str) -> None:
        """Forgets what went wrong with a model, and its versions that are not served."""
        with self._lock:
            self._failures.pop(name, None)
            self._states = {key: state for key, state in self._states.items() if key[0] != name}

    def has_failed(self, name: str) -> bool:
        """Whether the last load of a model failed."""
        with self._lock:
            return name in self._failures

    def note_failure(self, name: str, reason: str | None) -> None:
        """Notes why the last load of a model failed; None: it did not."""
        with self._lock:
            if reason is None:
                self._failures.pop(name, None)
            else:
                self._failures[name] = reason

    def index(self, names: Iterable[str]) -> list[IndexEntry]:
        """Every version known, and each of `names` of which no version is; sorted."""
        with self._lock:
            offers, states, failures = self.offers, dict(self._states), dict(self._failures)
        entries: dict[str, dict[int | None, IndexEntry]] = {name: {} for name in (*names, *failures)}
        for (name, version), (state, reason) in states.items():
            entries.setdefault(name, {})[version] = IndexEntry(name, str(version or ""), state, reason)
        for name, offer in offers.items():
            failure = failures.get(name)
            reason = f"goes on after a load that failed: {failure}" if failure else ""
            rolled_back = offer.router.state.rolled_back if offer.router is not None else {}
            for version in offer.versions:
                entries.setdefault(name, {})[version] = IndexEntry(
                    name, str(version), "READY", "; ".join(filter(None, (rolled_back.get(version), reason)))
                )
        lines: list[IndexEntry] = []
        for name in sorted(entries):
            known = entries[name]
            if len(known) > 1:
                known.pop(None, None)
            lines += [known[version] for version in sorted(known, key=lambda version: version or 0)]
            if not known:
                lines.append(IndexEntry(name, "", "UNAVAILABLE", failures.get(name, "not loaded")))
        return lines
