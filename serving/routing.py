"""Which version answers a request that names none: ``<model>/routing.json``.

    {
      "aliases": {"stable": 1, "canary": 2},
      "weights": {"stable": 90, "canary": 10},
      "rollback": {"version": "canary", "window_s": 60, "min_requests": 100, "max_error_rate": 0.02,
                   "max_latency_ms": 200, "latency_quantile": 0.99},
      "shadow": {"version": "canary", "share": 0.1, "tolerance": 1e-6}
    }

A version is named by an alias or by its number (``"2"``). `rollback` and `shadow` may be left out. Triton has no such
thing; a request that names a version, and so every batch run, has no part in it. The file is read whenever the model is
loaded, and is not part of what an answer depends on.
"""

from __future__ import annotations

import hashlib
import itertools
import logging
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from serving.answer import Answer
from serving.canary import Canary, Rollback
from serving.config import read_beside
from serving.errors import ModelLoadError, RetiredError, ServingError
from serving.model import Served, Services
from serving.request import Call
from serving.shadow import Shadow, ShadowCounts

log = logging.getLogger(__name__)

FILE_NAME = "routing.json"
_GOLDEN = (math.sqrt(5) - 1) / 2


class ShadowConfig(BaseModel):
    """A version that is asked too, and whose answers are only compared."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: str
    share: Annotated[float, Field(gt=0, le=1)] = 1.0
    tolerance: Annotated[float, Field(ge=0)] = 0.0


class RoutingConfig(BaseModel):
    """The contents of a ``routing.json``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    aliases: Mapping[str, Annotated[int, Field(ge=1)]] = {}
    weights: Mapping[str, Annotated[float, Field(ge=0, allow_inf_nan=False)]]
    rollback: Rollback | None = None
    shadow: ShadowConfig | None = None


def read_routing(model: str, folder: Path) -> RoutingConfig | None:
    """Reads a model's ``routing.json``; None when there is none.

    Raises:
        ModelLoadError: It is not as this module says.
    """
    path = folder / FILE_NAME
    text = read_beside(model, path)
    if text is None:
        return None
    try:
        return RoutingConfig.model_validate_json(text)
    except ValidationError as error:
        raise ModelLoadError(f"model {model!r}: {path}: {error}", field=FILE_NAME) from error


@dataclass(frozen=True, slots=True)
class RoutingState:
    """How a model's traffic is split now.

    Attributes:
        weights: By version; a canary that was rolled back has none.
        rolled_back: Versions that were rolled back, and why.
        shadow: What was compared.
    """

    weights: Mapping[int, float]
    rolled_back: Mapping[int, str]
    shadow: ShadowCounts


class Router:
    """Splits the requests for a model that name no version between its versions.

    Args:
        model: The model's name.
        config: Its routing.
        versions: What is served.
        services: What the models of the server share.
        before: The router that this one replaces: what it knows of a canary that is still the same goes on.

    Raises:
        ModelLoadError: None of the versions that get requests is served, or they have different tensors.
    """

    def __init__(
        self,
        model: str,
        config: RoutingConfig,
        versions: Mapping[int, Served],
        services: Services,
        before: Router | None = None,
    ) -> None:
        self.config = config
        self._model = model
        self._services = services
        self._turn = itertools.count()
        weights = {self._version(name): weight for name, weight in config.weights.items()}
        if len(weights) < len(config.weights):
            raise self._error("weights name a version twice")
        self._weights = {version: weight for version, weight in weights.items() if weight and version in versions}
        if not self._weights:
            raise self._error("weights need a version that is served and has a weight above 0")
        self._canary: Canary | None = None
        if config.rollback is not None and (version := self._version(config.rollback.version)) in versions:
            self._canary_version = version
            self._canary_served = versions[version]
            self._canary = self._take_over(before) or Canary(
                config.rollback, partial(_note_rollback, versions[version]), services.clock_ns
            )
        self._shadow: Shadow | None = None
        if config.shadow is not None and (version := self._version(config.shadow.version)) in versions:
            self._shadow = Shadow(versions[version], config.shadow.share, config.shadow.tolerance, services.shadowing)
        # What is left without the canary; where that is all there is, it stays.
        self._others = {
            version: weight
            for version, weight in self._weights.items()
            if self._canary is None or version != self._canary_version
        }
        used = {*self._weights, *([self._shadow.served.version] if self._shadow else [])}
        first = versions[min(used)].config
        for version in used:
            other = versions[version].config
            if (other.inputs, other.outputs, other.is_batched) != (first.inputs, first.outputs, first.is_batched):
                raise self._error(f"versions {min(used)} and {version} have different inputs or outputs")

    @property
    def weights(self) -> dict[int, float]:
        """The weights of now, without a canary that was rolled back."""
        if self._canary is None or not self._canary.reason:
            return self._weights
        return self._others or self._weights

    @property
    def main(self) -> int:
        """The version with most of the traffic; of equal ones the highest."""
        return max(self.weights.items(), key=lambda item: (item[1], item[0]))[0]

    @property
    def state(self) -> RoutingState:
        """How the traffic is split now."""
        reason = self._canary.reason if self._canary is not None else ""
        return RoutingState(
            self.weights,
            {self._canary_version: reason} if reason else {},
            ShadowCounts() if self._shadow is None else self._shadow.counts,
        )

    def choose(self, key: str | None) -> int:
        """The version for a request: always the same for a key, as long as the weights are.

        Keys are spread by weighted rendezvous hashing: when a weight grows, keys only move to that version, and when a
        version goes, only its keys move.

        Source: Schindelhauer and Schomaker, "Weighted distributed hash tables", SPAA 2005.
        """
        weights = self.weights
        if key is not None:
            return min(weights, key=lambda version: self._lot(key, version) / weights[version])
        # Evenly spread whatever the number of requests.
        point = next(self._turn) * _GOLDEN % 1 * sum(weights.values())
        for version, weight in weights.items():
            point -= weight
            if point < 0:
                return version
        return version

    def follow(self, served: Served, call: Call, take: Callable[[Call], Answer]) -> Answer:
        """Has a call taken by the version that was chosen; watches what becomes of it.

        Raises:
            ServingError: The call was not taken.
        """
        canary = self._canary if self._canary is not None and served.version == self._canary_version else None
        begun_ns = self._services.clock_ns()
        try:
            answer = take(call)
        except RetiredError:
            raise
        except ServingError as error:
            if canary is not None:
                canary.observe(self._services.clock_ns() - begun_ns, error)
            raise
        if canary is not None:
            answer.add_done_callback(lambda done: canary.observe(self._services.clock_ns() - begun_ns, done.error))
        if self._shadow is not None and served is not self._shadow.served:
            self._shadow.follow(call, answer)
        return answer

    def _lot(self, key: str, version: int) -> float:
        """An exponentially distributed number that key and version decide."""
        content = f"{self._model}\0{version}\0{key}".encode("utf-8", "surrogatepass")
        lot = int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "big")
        return -math.log((lot + 1) / (2**64 + 1))

    def check(self, versions: Iterable[int]) -> None:
        """Refuses a routing that names a version which is not served, or that would leave none after a rollback.

        A version that is taken out later only gets no requests any more.

        Raises:
            ModelLoadError: It does.
        """
        config = self.config
        asked = [*config.weights, *([config.rollback.version] if config.rollback else [])]
        for name in [*asked, *([config.shadow.version] if config.shadow else [])]:
            if self._version(name) not in versions:
                raise self._error(f"version {name!r} is not served; there are {', '.join(map(str, sorted(versions)))}")
        if self._canary is not None and self._weights.keys() <= {self._canary_version}:
            raise self._error("rollback leaves no version with a weight above 0")

    def _version(self, name: str) -> int:
        version = self.config.aliases.get(name)
        if version is None:
            if not (name.isdecimal() and name.isascii()):
                raise self._error(f"{name!r} is neither an alias nor a version")
            version = int(name)
        return version

    def _take_over(self, before: Router | None) -> Canary | None:
        if before is None or before._canary is None or before.config != self.config:
            return None
        return before._canary if before._canary_served is self._canary_served else None

    def _error(self, text: str) -> ModelLoadError:
        return ModelLoadError(f"model {self._model!r}: {FILE_NAME}: {text}", field=FILE_NAME)


def _note_rollback(served: Served, reason: str) -> None:
    served.statistics.add(rollbacks=1)
    log.warning("%s: %s", served.label, reason)
