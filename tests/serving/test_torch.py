"""The torch backend: exported programs and named modules, and archives that try to run code."""

from __future__ import annotations

import io
import json
import pickle
import zipfile

import numpy as np
import pytest
import safetensors.torch
import torch

from serving.errors import ModelLoadError
from serving.server import ModelServer
from tests.serving.modules import seeded

X = np.random.default_rng(3).normal(size=(29, 4)).astype(np.float32)
MODULE_CONFIG = """
backend: "torch" max_batch_size: 16 dynamic_batching { }
input { name: "x" data_type: TYPE_FP32 dims: [ 4 ] }
output { name: "embedding" data_type: TYPE_FP32 dims: [ 3 ] }
output { name: "mean" data_type: TYPE_FP32 dims: [ 1 ] }
parameters { key: "module" value { string_value: "tests.serving.modules:Embedder" } }
parameters { key: "module_arguments" value { string_value: "{\\"width\\": 32}" } }
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """An exported program without sample inputs."""
    batch = torch.export.Dim("batch", min=1, max=64)
    exported = torch.export.export(seeded(), (torch.zeros(2, 4),), dynamic_shapes={"x": {0: batch}})
    exported._example_inputs = None
    path = tmp_path_factory.mktemp("pt2") / "model.pt2"
    torch.export.save(exported, path)
    return path


def write(tmp_path, config, files):
    folder = tmp_path / "embedder" / "1"
    folder.mkdir(parents=True)
    (folder.parent / "config.pbtxt").write_text(config)
    for name, content in files.items():
        (folder / name).write_bytes(content)


def expected():
    with torch.inference_mode():
        return {name: tensor.numpy() for name, tensor in seeded()(torch.from_numpy(X)).items()}


def test_an_exported_program_completes_its_configuration(tmp_path, program):
    write(tmp_path, "max_batch_size: 16 dynamic_batching { }", {"model.pt2": program.read_bytes()})
    with ModelServer(tmp_path) as server:
        metadata = server.metadata("embedder")
        assert [str(spec) for spec in metadata.inputs] == ["x float32[4]"]
        assert [str(spec) for spec in metadata.outputs] == ["embedding float32[3]", "mean float32[1]"]
        outputs = server.infer("embedder", {"x": X})
        for name, array in expected().items():
            np.testing.assert_allclose(outputs[name], array, rtol=1e-5, atol=1e-6)
        one_by_one = [server.infer("embedder", {"x": X[i : i + 1]})["embedding"] for i in range(len(X))]
        assert np.concatenate(one_by_one).tobytes() == outputs["embedding"].tobytes()


def test_a_named_module_with_safetensors(tmp_path):
    weights = safetensors.torch.save(seeded().state_dict())
    write(tmp_path, MODULE_CONFIG, {"model.safetensors": weights})
    with ModelServer(tmp_path) as server:
        outputs = server.infer("embedder", {"x": X})
        for name, array in expected().items():
            np.testing.assert_allclose(outputs[name], array, rtol=1e-5, atol=1e-6)


def test_precision_is_part_of_the_digest(tmp_path):
    weights = safetensors.torch.save(seeded().state_dict())
    write(tmp_path / "fp32", MODULE_CONFIG, {"model.safetensors": weights})
    half = MODULE_CONFIG + 'parameters { key: "precision" value { string_value: "bf16" } }'
    write(tmp_path / "bf16", half, {"model.safetensors": weights})
    with ModelServer(tmp_path / "fp32") as full, ModelServer(tmp_path / "bf16") as rough:
        assert full.digest("embedder") != rough.digest("embedder")
        difference = full.infer("embedder", {"x": X})["embedding"] - rough.infer("embedder", {"x": X})["embedding"]
        assert 0 < np.abs(difference).max() < 0.1


@pytest.mark.parametrize(
    ("config", "files", "words"),
    [
        (
            MODULE_CONFIG.replace("modules:Embedder", "modules:Nothing"),
            {"model.safetensors": b""},
            "parameter 'module' is",
        ),
        (
            MODULE_CONFIG.replace("tests.serving.modules:Embedder", "pathlib:Path"),
            {"model.safetensors": b""},
            "is no torch.nn",
        ),
        (MODULE_CONFIG, {"model.safetensors": b"rubbish"}, "torch cannot load it"),
        (MODULE_CONFIG, {"model.pt": b""}, "has no model.pt2 or model.safetensors"),
        (MODULE_CONFIG + 'default_model_filename: "model.pt"', {"model.pt": b""}, "nothing that is unpickled"),
        (MODULE_CONFIG + "instance_group { kind: KIND_GPU gpus: 63 }", {"model.safetensors": b""}, "sees . GPUs"),
    ],
)
def test_what_cannot_be_loaded_says_why(tmp_path, config, files, words):
    write(tmp_path, config, files)
    with pytest.raises(ModelLoadError, match=words):
        ModelServer(tmp_path).start()


class Bomb:
    """Writes a file when unpickled."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return open, (self.path, "w")


def tampered(program, change):
    """The archive's bytes after `change(entries)`, entries by name without the root folder."""
    with zipfile.ZipFile(program) as archive:
        entries = {info.filename.partition("/")[2]: archive.read(info) for info in archive.infolist()}
    change(entries)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, content in entries.items():
            archive.writestr(f"model/{name}", content)
    return buffer.getvalue()


def edit(entries, name, change):
    value = json.loads(entries[name])
    change(value)
    entries[name] = json.dumps(value).encode()


def attacks(marker):
    """Ways to run code on opening, by the words of the refusal."""
    bomb = pickle.dumps(Bomb(marker))
    call = f"open({str(marker)!r}, 'w')"
    weights, constants, model = (
        "data/weights/model_weights_config.json",
        "data/constants/model_constants_config.json",
        "models/model.json",
    )

    def pickled_weight(entries):
        entries["data/weights/weight_0"] = bomb
        edit(entries, weights, lambda value: next(iter(value["config"].values())).update(use_pickle=True))

    def custom_object(entries):
        entries["data/constants/opaque_obj_0"] = bomb
        entry = {"path_name": "opaque_obj_0", "is_param": False, "use_pickle": True, "tensor_meta": None}
        edit(entries, constants, lambda value: value["config"].update(thing=entry))

    def shape(entries):
        def change(value):
            sizes = value["graph_module"]["graph"]["tensor_values"]["x"]["sizes"]
            sizes[0]["as_expr"]["expr_str"] = call

        edit(entries, model, change)

    def operator(entries):
        def change(value):
            value["graph_module"]["graph"]["nodes"][0]["target"] = "torch.serialization.os.system"

        edit(entries, model, change)

    def file_operator(entries):
        def change(value):
            value["graph_module"]["graph"]["nodes"][0]["target"] = "torch.ops.aten.from_file.default"

        edit(entries, model, change)

    def container(entries):
        def change(value):
            context = {"default_factory_module": "antigravity", "default_factory_name": "x", "dict_context": []}
            spec = {"type": "collections.defaultdict", "context": json.dumps(context), "children_spec": []}
            value["graph_module"]["module_call_graph"][0]["signature"]["in_spec"] = json.dumps([1, spec])

        edit(entries, model, change)

    return {
        "holds sample inputs": lambda entries: entries.update({"data/sample_inputs/model.pt": bomb}),
        "which torch would unpickle": pickled_weight,
        "data/constants/opaque_obj_0: refused": custom_object,
        r"the shape .open": shape,
        "the operator 'torch.serialization.os.system'": operator,
        "the operator 'torch.ops.aten.from_file.default'": file_operator,
        "the container 'collections.defaultdict'": container,
        "data/aotinductor/model/x.so: refused": lambda entries: entries.update(
            {"data/aotinductor/model/x.so": b"\x7fELF"}
        ),
    }


@pytest.mark.parametrize("words", list(attacks("")))
def test_a_hostile_archive_is_refused_and_runs_nothing(tmp_path, program, words):
    marker = tmp_path / "ran"
    write(tmp_path / "repository", "max_batch_size: 4", {"model.pt2": tampered(program, attacks(marker)[words])})
    with pytest.raises(ModelLoadError, match=words):
        ModelServer(tmp_path / "repository").start()
    assert not marker.exists()


def test_guards_are_left_out(tmp_path, program):
    marker = tmp_path / "ran"

    def change(entries):
        edit(entries, "models/model.json", lambda value: value.update(guards_code=[f"open({str(marker)!r}, 'w')"]))

    write(tmp_path / "repository", "max_batch_size: 16", {"model.pt2": tampered(program, change)})
    with ModelServer(tmp_path / "repository") as server:
        server.infer("embedder", {"x": X})
    assert not marker.exists()


@pytest.mark.parametrize("change", [lambda b: b[: len(b) // 2], lambda b: b"PK rubbish", lambda b: b""])
def test_a_broken_archive_is_refused(tmp_path, program, change):
    write(tmp_path, "max_batch_size: 4", {"model.pt2": change(program.read_bytes())})
    with pytest.raises(ModelLoadError, match=r"model\.pt2"):
        ModelServer(tmp_path).start()
