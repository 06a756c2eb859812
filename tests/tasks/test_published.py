"""Published models are added whole or not at all, from the very package, and nothing of it runs."""

from __future__ import annotations

import fcntl
import hashlib
import os
import pickle
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from serving.server import ModelServer
from tasks.errors import FolderError
from tasks.published.adding import Reader, add_model
from tasks.published.home import ModelsHome
from tasks.published.made import MadeModel
from tasks.published.pickled_numbers import Inert, read_pickle
from tasks.published.publication import PUBLICATIONS, Publication, PublishedModelError, find_publication
from tasks.published.torch_file import read_tensors
from tasks.published.wheel import Wheel
from tasks.training.graphs import build_model

GRAPH = "toy (float[n, 2] x) => (float[n, 2] y) { y = Mul (x, factor) }"
CONFIG = """name: "toy" backend: "onnxruntime" max_batch_size: 8
input [ { name: "x" data_type: TYPE_FP32 dims: [ 2 ] } ] output [ { name: "y" data_type: TYPE_FP32 dims: [ 2 ] } ]"""
METADATA = "Metadata-Version: 2.1\nName: toy\nVersion: 1.0\nRequires-Dist: no-such-package-at-all\n"


@pytest.fixture
def publication(tmp_path: Path) -> Publication:
    """A package of one number, whose code would leave a file behind, in the folder ``links``."""
    folder = tmp_path / "links"
    folder.mkdir()
    path = folder / "toy-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("toy/__init__.py", f"open({str(tmp_path / 'ran')!r}, 'w').close()")
        archive.writestr("toy/factor.txt", "3")
        archive.writestr("../../outside.txt", "no")
        archive.writestr("toy-1.0.dist-info/METADATA", METADATA)
        archive.writestr("toy-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("toy-1.0.dist-info/RECORD", "")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return Publication("toy", "toy", "1.0", path.name, digest, "MIT", "Free.", False, "Nobody 2026.", "a factor")


def read_toy(wheel: Wheel) -> list[MadeModel]:
    factor = np.float32(wheel.read("toy/factor.txt"))
    return [MadeModel("toy", CONFIG, {"model.onnx": build_model(GRAPH, {"factor": factor})}, "Multiplies.", {})]


def check_toy(wheel: Wheel, server: ModelServer) -> str:
    answer = server.infer("toy", {"x": np.ones((1, 2), np.float32)})["y"]
    if answer.tolist() != [[3, 3]]:
        raise PublishedModelError(f"toy: {answer}")
    return "One times three is three."


TOY = Reader(read_toy, check_toy)


def test_added_by_pip_alone_then_shown_changed_and_removed(tmp_path: Path, publication: Publication) -> None:
    home = ModelsHome(tmp_path / "home")
    assert home.facts("toy") is None
    repository = add_model(publication, TOY, home, is_accepted=False, find_links=[str(tmp_path / "links")])
    assert repository == home.repository("toy")
    facts = home.facts("toy")
    assert facts is not None
    assert facts["package_sha256"] == publication.sha256
    card = (repository / "toy" / "MODEL_CARD.md").read_text()
    for text in ("Multiplies.", publication.sha256, "Nobody 2026.", "One times three is three.", "MIT. Free."):
        assert text in card
    with ModelServer(repository) as server:
        assert server.infer("toy", {"x": np.array([[1, 2]], np.float32)})["y"].tolist() == [[3, 6]]
    assert home.changed_files("toy") == []
    with open(repository / "toy" / "1" / "model.onnx", "ab") as file:
        file.write(b"x")
    assert home.changed_files("toy") == ["toy/1/model.onnx"]
    # The kept wheel serves again, without pip.
    add_model(publication, TOY, home, is_accepted=False, find_links=[str(tmp_path / "nowhere")])
    assert home.changed_files("toy") == []
    home.remove(publication)
    assert home.facts("toy") is None
    assert sorted(path.name for path in home.root.iterdir()) == [".packages", ".toy.lock"]
    assert list(home.packages.iterdir()) == []
    with pytest.raises(PublishedModelError, match="was not added"):
        home.remove(publication)
    assert not (tmp_path / "ran").exists(), "code of the package ran"
    assert not list(tmp_path.rglob("outside.txt"))


def test_another_file_than_was_published_is_refused(tmp_path: Path, publication: Publication) -> None:
    home = ModelsHome(tmp_path / "home")
    other = replace(publication, sha256="0" * 64)
    for where in ({"find_links": [str(tmp_path / "links")]}, {"file": tmp_path / "links" / publication.file_name}):
        with pytest.raises(PublishedModelError, match="nothing of it was used") as raised:
            add_model(other, TOY, home, is_accepted=True, **where)
        assert raised.value.reason == "OTHER_PACKAGE"
    assert not home.repository("toy").exists()
    assert not list(home.packages.glob("*"))


def test_what_pip_cannot_find_says_what_to_do(tmp_path: Path, publication: Publication) -> None:
    with pytest.raises(PublishedModelError, match=r"PIP_INDEX_URL.*--package") as raised:
        add_model(
            replace(publication, version="2.0"),
            TOY,
            ModelsHome(tmp_path / "home"),
            is_accepted=True,
            find_links=[str(tmp_path / "links")],
        )
    assert raised.value.reason == "DOWNLOAD"


def test_a_licence_that_restricts_must_be_accepted(tmp_path: Path, publication: Publication) -> None:
    home = ModelsHome(tmp_path / "home")
    restricted = replace(publication, is_restricted=True)
    file = tmp_path / "links" / publication.file_name
    with pytest.raises(PublishedModelError, match="--accept-licence"):
        add_model(restricted, TOY, home, is_accepted=False, file=file)
    assert not home.root.exists()
    assert add_model(restricted, TOY, home, is_accepted=True, file=file).is_dir()


def test_models_that_answer_otherwise_do_not_replace_those_that_are_there(
    tmp_path: Path, publication: Publication
) -> None:
    home = ModelsHome(tmp_path / "home")
    file = tmp_path / "links" / publication.file_name
    add_model(publication, TOY, home, is_accepted=True, file=file)

    def fail(wheel: Wheel, server: ModelServer) -> str:
        raise PublishedModelError("toy: differs")

    with pytest.raises(PublishedModelError, match="differs"):
        add_model(publication, Reader(read_toy, fail), home, is_accepted=True, file=file)
    assert home.changed_files("toy") == []
    assert not (home.root / ".toy.part").exists()


def test_a_killed_add_leaves_nothing_and_the_next_one_works(tmp_path: Path, publication: Publication) -> None:
    home = ModelsHome(tmp_path / "home")
    file = tmp_path / "links" / publication.file_name
    child = os.fork()
    if not child:
        die: Callable[..., list[MadeModel]] = lambda wheel: os._exit(9)  # noqa: E731
        add_model(publication, Reader(die, check_toy), home, is_accepted=True, file=file)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    assert (home.root / ".toy.part").exists()
    assert home.facts("toy") is None
    add_model(publication, TOY, home, is_accepted=True, file=file)
    assert home.changed_files("toy") == []
    assert not (home.root / ".toy.part").exists()


def test_two_at_once_do_not_meet(tmp_path: Path, publication: Publication) -> None:
    home = ModelsHome(tmp_path / "home")
    home.root.mkdir()
    with open(home.root / ".toy.lock", "w") as lock:
        lock.write("4711\n")
        lock.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(FolderError, match="process 4711") as raised:
            add_model(publication, TOY, home, is_accepted=True, file=tmp_path / "links" / publication.file_name)
    assert raised.value.reason == "LOCKED"


def test_an_entry_that_is_missing_or_doubled_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a", "1")
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("a", "2")
    with Wheel(path) as wheel:
        for name in ("a", "b"):
            with pytest.raises(PublishedModelError, match=f"{name!r}, one is needed"):
                wheel.read(name)
    path.write_text("no zip")
    with pytest.raises(PublishedModelError, match="not a wheel"):
        Wheel(path)


class NumpyArrayWrapper:
    """As joblib's: its numbers stand in the file behind the opcodes that make it."""

    def __init__(self, array: np.ndarray) -> None:
        self.__dict__ = {"shape": array.shape, "order": "C", "dtype": array.dtype}


class Hostile:
    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self._path),)


def test_numbers_of_a_pickle_are_read_and_nothing_of_it_runs(tmp_path: Path) -> None:
    plain = {"a": 1.5, "b": [1, (2, 300, -7)], "c": None, "d": True, "e": "text"}
    assert read_pickle(pickle.dumps(plain, 3), "plain") == plain
    array = np.arange(6, dtype=np.float64).reshape(2, 3)
    content = pickle.dumps({"coef_": NumpyArrayWrapper(array)}, 3)
    at = len(content) - len("s.")  # behind the BUILD
    found = read_pickle(content[:at] + array.tobytes() + content[at:], "joblib")
    assert np.array_equal(found["coef_"], array)
    hostile = read_pickle(pickle.dumps({"x": Hostile(tmp_path / "ran")}, 3), "hostile")["x"]
    assert isinstance(hostile, Inert)
    assert hostile.name.endswith("mkdir")
    assert not (tmp_path / "ran").exists()
    for damaged in (pickle.dumps(plain, 5), b"", b"\x80\x03}", content):
        with pytest.raises(PublishedModelError, match="not a pickle of a few numbers"):
            read_pickle(damaged, "damaged")


def test_a_torch_file_that_holds_more_than_tensors_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "weights.pt"
    torch.save({"w": torch.ones(2), "x": Hostile(tmp_path / "ran")}, path)
    with pytest.raises(PublishedModelError, match="not tensors alone"):
        read_tensors(path.read_bytes(), "weights.pt")
    assert not (tmp_path / "ran").exists()
    torch.save({"state": {"w": torch.ones(2)}}, path)
    assert read_tensors(path.read_bytes(), "weights.pt", "state")["w"].tolist() == [1, 1]


def test_every_publication_says_what_a_user_must_know() -> None:
    assert {each.name for each in PUBLICATIONS if each.is_restricted} == {"spliceai"}
    for each in PUBLICATIONS:
        assert len(each.sha256) == 64
        assert each.version in each.file_name
        assert find_publication(each.name) is each
    with pytest.raises(PublishedModelError, match="there is: spliceai, cispliceai, mmsplice, tiara, semibin"):
        find_publication("alphafold")
