"""The plan: what a run computes, resolved once; free of paths, hosts and times: equal plans give equal bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tasks.errors import FolderError
from tasks.files import file_sha256, json_sha256, read_json, write_json

FORMAT = 1
_OF_ALL = ("models.", "embed_reads")
"""What is chosen for all samples at once, though only some depend on it."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that decides the bytes of a run's outputs.

    Attributes:
        recipe: What is common to all samples: reference, pipeline with options, its models with digests, regions.
        samples: For each sample id what its outputs depend on beside the recipe: kind, content digests, choices, and
            the models that only some kinds of samples need.
    """

    recipe: dict[str, Any]
    samples: dict[str, dict[str, Any]]

    @property
    def digest(self) -> str:
        """The identity of the run: 64 hex digits."""
        return json_sha256({"format": FORMAT, "recipe": self.recipe, "samples": self.samples})

    @property
    def models(self) -> dict[str, dict[str, Any]]:
        """Every model of the run by name: ``version`` and execution ``digest``."""
        models: dict[str, dict[str, Any]] = dict(self.recipe["models"])
        for sample in self.samples.values():
            models |= sample.get("models", {})
        return models

    def sample_models(self, sample_id: str) -> dict[str, dict[str, Any]]:
        """The models that one sample's outputs depend on."""
        return {**self.recipe["models"], **self.samples[sample_id].get("models", {})}

    def sample_digest(self, sample_id: str) -> str:
        """The identity of one sample's outputs: it does not change when other samples join the cohort."""
        return json_sha256({"format": FORMAT, "recipe": self.recipe, "sample": self.samples[sample_id]})

    def write(self, path: Path) -> None:
        """Writes the plan as JSON, whole."""
        write_json(path, {"format": FORMAT, "digest": self.digest, "recipe": self.recipe, "samples": self.samples})


def read_plan(path: Path) -> Plan | None:
    """Reads a folder's plan; None where there is none.

    Raises:
        FolderError: The file is not a plan that this version understands.
    """
    if not path.exists():
        return None
    try:
        value = read_json(path)
        if value["format"] != FORMAT:
            raise FolderError(f"{path}: plan format {value['format']}, this version writes {FORMAT}; use --overwrite")
        return Plan(value["recipe"], value["samples"])
    except (ValueError, KeyError, TypeError) as error:
        raise FolderError(f"{path}: not a plan of this program ({error}); use --overwrite") from error


def check_resumable(
    old: Plan, new: Plan, finished: Iterable[str], names: Mapping[str, str] = MappingProxyType({})
) -> dict[str, list[str]]:
    """Checks that `new` may go on in a folder that holds `old`: the same recipe and models, and no sample left out.

    Samples may be added, and may change; one that never finished may be left out; and where none ever finished,
    everything may change.

    Args:
        old: The folder's plan.
        new: This run's plan.
        finished: Samples whose outputs are in the folder.
        names: Names of files by digest, for the messages.

    Returns:
        What changed of each finished sample that has to be done anew.

    Raises:
        FolderError: It may not; the message lists every difference, and what can be done.
    """
    held = sorted(finished)
    if not held:
        return {}
    of_all = [f"{where}: was {a}, now {b}" for where, a, b in _differences(old.recipe, new.recipe, "", names)]
    missing = [sample_id for sample_id in held if sample_id not in new.samples]
    changed: dict[str, list[str]] = {}
    for sample_id in held:
        if sample_id not in old.samples or sample_id not in new.samples:
            continue
        for where, a, b in _differences(old.samples[sample_id], new.samples[sample_id], "", names):
            text = f"{where}: was {a}, now {b}"
            if where.startswith(_OF_ALL):
                of_all.append(f"sample {sample_id}, {text}")
            else:
                changed.setdefault(sample_id, []).append(text)
    faults = of_all + [f"sample {sample_id}: is in the folder, not in the sheet" for sample_id in missing]
    if not faults:
        return changed
    advice = []
    if of_all:
        advice.append("what every sample depends on has changed: give the same command and files as before")
    if missing:
        advice.append("put the missing samples' lines back into the sheet")
    raise FolderError(
        "the output folder holds another plan:\n  "
        + "\n  ".join(faults)
        + f"\n{'; '.join(advice)}; or choose another folder; or --overwrite, which does all samples anew",
        field="output",
        reason="OTHER_PLAN",
    )


def _differences(old: Any, new: Any, where: str, names: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Where two values differ, and how each reads there; lists of what has a name or id are compared by it."""
    named = [_by_name(value) for value in (old, new)]
    if None not in named and named != [{}, {}]:
        before, now = (", ".join(each or ()) for each in named)
        if sorted(named[0] or ()) == sorted(named[1] or ()) and before != now:
            return [(where, before, now)]
        old, new = named
    elif _name_of(old if new is None else new) and None in (old, new):
        return [(where, _in_words(old, names), _in_words(new, names))]
    if isinstance(old, dict) or isinstance(new, dict):
        old, new = old or {}, new or {}
        found = []
        for key in sorted({*old, *new}):
            found += _differences(old.get(key), new.get(key), f"{where}.{key}" if where else str(key), names)
        return found
    return [] if old == new else [(where, _in_words(old, names), _in_words(new, names))]


def _by_name(value: Any) -> dict[str, Any] | None:
    """The entries of a list by their names; nothing stands for an empty list; None where they have none."""
    if value is None:
        return {}
    if not isinstance(value, list):
        return None
    entries = {name: each for each in value if (name := _name_of(each))}
    return entries if len(entries) == len(value) else None


def _name_of(value: Any) -> str | None:
    return value.get("name") or value.get("id") if isinstance(value, dict) else None


def _in_words(value: Any, names: Mapping[str, str]) -> str:
    """A value of a plan as people read it; digests are cut, and say whose they are where that is known."""
    if value is None or value == []:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(_in_words(each, names) for each in value)
    if isinstance(value, dict):
        digest = f" ({_in_words(value['digest'], names)})" if "digest" in value else ""
        return f"{_name_of(value) or ''}{digest}".lstrip()
    text = str(value)
    if len(text) != 64:
        return text
    return f"{text[:12]}…{f' ({names[text]})' if text in names else ''}"


def digested_names(memory: Path) -> dict[str, str]:
    """The names of the files that `digest_files` remembers, by their digest."""
    known: dict[str, Any] = read_json(memory) if memory.exists() else {}
    return {digest: Path(path).name for path, (_, digest) in known.items()}


def digest_files(paths: Sequence[Path], memory: Path, on_done: Callable[[], None] = lambda: None) -> dict[Path, str]:
    """Digests the content of every input once.

    A file whose size, inode and time of change are those that `memory` remembers is not read again.

    Args:
        paths: The files.
        memory: JSON file of earlier digests, updated.
        on_done: Called after each file, in this thread.

    Returns:
        For each path its SHA-256, 64 hex digits.
    """
    known: dict[str, Any] = read_json(memory) if memory.exists() else {}

    def digest(path: Path) -> tuple[str, list[int], str]:
        status = path.stat()
        stamp = [status.st_size, status.st_mtime_ns, status.st_ino]
        entry = known.get(str(path))
        value = entry[1] if entry and entry[0] == stamp else file_sha256(path)
        return str(path), stamp, value

    results = []
    with ThreadPoolExecutor(max_workers=2) as pool:
        for result in pool.map(digest, dict.fromkeys(paths)):
            results.append(result)
            on_done()
    write_json(memory, {**known, **{path: [stamp, value] for path, stamp, value in results}})
    return {Path(path): value for path, _, value in results}
