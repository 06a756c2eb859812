"""A change of what is served, made aside: nothing of it is served before all of it can be."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from serving.config import ENSEMBLE
from serving.ensemble import Ensemble
from serving.errors import ModelLoadError, NotFoundError, ServingError
from serving.model import Model, Served, Services
from serving.repository import ModelFolder, files_sha256, read_model
from serving.roster import Offer, Offers, find_offer, find_served
from serving.routing import Router, read_routing


class Change:
    """Loads and unloads on a copy of what is served.

    After the last of them `settle` makes anew the ensembles whose steps are no longer those that are served. Then
    either `offers` are published and `replaced` closed, or, if anything failed, `abandon` closes what was made.

    Args:
        repository: The model repository.
        threads: CPU threads of an execution.
        services: What the models of the server share.
        offers: What is served.
        begun: Called with name and version before each is loaded.
    """

    def __init__(
        self,
        repository: Path,
        threads: int,
        services: Services,
        offers: Offers,
        begun: Callable[[str, int], object],
    ) -> None:
        self.offers = dict(offers)
        self._repository = repository
        self._threads = threads
        self._services = services
        self._before = offers
        self._begun = begun
        self._made: list[Served] = []

    def load(self, folder: ModelFolder) -> None:
        """Loads a model that was asked for, and what it is made of; versions that did not change stay as they are.

        Raises:
            ModelLoadError: It cannot be served.
        """
        self._load(folder, (), is_asked=True)

    def unload(self, name: str, version: int | None, *, with_dependents: bool) -> None:
        """Takes a model, or one version of it, out.

        Args:
            name: The model.
            version: One of its versions; None: all.
            with_dependents: Whether models that were loaded only as its steps go as well.

        Raises:
            NotFoundError: It is not served.
        """
        offer = find_offer(self.offers, name)
        left = {} if version is None else {n: served for n, served in offer.versions.items() if n != version}
        gone = [find_served(self.offers, name, n) for n in (offer.versions if version is None else (version,))]
        if left:
            self.offers[name] = self._reroute(replace(offer, versions=left))
        else:
            del self.offers[name]
        if with_dependents and not left:
            used = {
                part.name for offer in self.offers.values() for one in offer.versions.values() for part in one.parts
            }
            for step in sorted({part.name for one in gone for part in one.parts} - used):
                if step in self.offers and not self.offers[step].is_asked:
                    self.unload(step, None, with_dependents=True)

    def settle(self) -> None:
        """Makes ensembles anew whose steps were replaced, so that each is of models that are served.

        Raises:
            ModelLoadError: An ensemble does not fit a step's new version, or needs one that is to go.
        """
        # An ensemble made anew may be a step of another.
        while any(self._settle(offer) for offer in list(self.offers.values()) if offer.folder.backend == ENSEMBLE):
            pass

    def abandon(self) -> None:
        """Closes what was made."""
        for served in closing_order(self._made):
            served.close()
        self._made = []

    def drop_spare(self) -> None:
        """Closes what was made and then made anew."""
        kept = {id(served) for served in _all(self.offers)}
        spare = [served for served in self._made if id(served) not in kept]
        for served in closing_order(spare):
            served.close()
        self._made = [served for served in self._made if id(served) in kept]

    @property
    def replaced(self) -> list[Served]:
        """What was served and is no more, in the order in which it must be closed."""
        kept = {id(served) for served in _all(self.offers)}
        return closing_order(served for served in _all(self._before) if id(served) not in kept)

    def _load(self, folder: ModelFolder, path: tuple[str, ...], *, is_asked: bool) -> None:
        name = folder.name
        if folder.backend == ENSEMBLE:
            self._load_steps(folder, (*path, name))
        old = self.offers.get(name)
        versions: dict[int, Served] = {}
        for version in folder.versions:
            same = old.versions.get(version) if old is not None else None
            if same is None or not _is_unchanged(same, folder, version):
                same = self._make(folder, version)
            versions[version] = same
        self.offers[name] = Offer(
            folder, versions, is_asked or (old is not None and old.is_asked), self._route(folder, versions)
        )

    def _route(self, folder: ModelFolder, versions: Mapping[int, Served]) -> Router | None:
        config = read_routing(folder.name, folder.path)
        if config is None:
            return None
        before = self._before.get(folder.name)
        router = Router(folder.name, config, versions, self._services, before.router if before is not None else None)
        router.check(versions)
        return router

    def _load_steps(self, folder: ModelFolder, path: tuple[str, ...]) -> None:
        for step in folder.message.ensemble_scheduling.step:
            if step.model_name in path:
                raise ModelLoadError(
                    f"ensemble {step.model_name!r} contains itself: {' -> '.join([*path, step.model_name])}",
                    field="ensemble_scheduling",
                )
            if step.model_name in self.offers:
                continue
            try:
                self._load(read_model(self._repository, step.model_name), path, is_asked=False)
            except NotFoundError as error:
                raise ModelLoadError(
                    f"ensemble {folder.name!r}: {error.message}", field="ensemble_scheduling"
                ) from error

    def _make(self, folder: ModelFolder, version: int) -> Served:
        self._begun(folder.name, version)
        try:
            served: Served
            if folder.backend == ENSEMBLE:
                served = Ensemble(folder, version, self._find, self._services)
            else:
                served = Model(folder, version, self._threads, self._services)
            self._made.append(served)
            served.warm_up()
            served.start()
        except ServingError:
            raise
        except Exception as error:
            raise ModelLoadError(f"model {folder.name!r} version {version}: {type(error).__name__}: {error}") from error
        return served

    def _settle(self, offer: Offer) -> bool:
        versions = dict(offer.versions)
        for version, ensemble in offer.versions.items():
            if not self._is_settled(ensemble):
                versions[version] = self._make(ensemble.folder, version)
        if versions == offer.versions:
            return False
        self.offers[offer.folder.name] = self._reroute(replace(offer, versions=versions))
        return True

    def _reroute(self, offer: Offer) -> Offer:
        """The offer with a router of its versions, by the routing that was read when the model was loaded."""
        old = offer.router
        if old is None:
            return offer
        if not offer.versions.keys() & old.weights.keys():
            return replace(offer, router=None)
        return replace(offer, router=Router(offer.folder.name, old.config, offer.versions, self._services, old))

    def _is_settled(self, ensemble: Served) -> bool:
        steps = ensemble.config.message.ensemble_scheduling.step
        for step, part in zip(steps, ensemble.parts, strict=True):
            try:
                found = self._find_step(step)
            except NotFoundError as error:
                raise ModelLoadError(
                    f"model {step.model_name!r} is a step of {ensemble.label}: {error.message}",
                    field="ensemble_scheduling",
                ) from error
            if found is not part:
                return False
        return True

    def _find_step(self, step: Any) -> Served:
        return self._find(step.model_name, step.model_version if step.model_version > 0 else None)

    def _find(self, name: str, version: int | None) -> Served:
        return find_served(self.offers, name, version)


def closing_order(all_served: Iterable[Served]) -> list[Served]:
    """Sorts ensembles before the models that they are made of."""
    order: list[Served] = []
    waiting = list(all_served)
    while waiting:
        needed = {id(part) for served in waiting for part in served.parts}
        order += [served for served in waiting if id(served) not in needed]
        waiting = [served for served in waiting if id(served) in needed]
    return order


def _all(offers: Offers) -> list[Served]:
    return [served for offer in offers.values() for served in offer.versions.values()]


def _is_unchanged(served: Served, folder: ModelFolder, version: int) -> bool:
    """Whether a version would be loaded from what it was loaded from."""
    return _without_policy(served.folder.message) == _without_policy(folder.message) and served.files == files_sha256(
        folder.version_path(version)
    )


def _without_policy(message: Any) -> Any:
    bare = type(message)()
    bare.CopyFrom(message)
    bare.ClearField("version_policy")
    return bare
