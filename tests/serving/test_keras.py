"""The keras backend: both kinds of file, and files that would run code."""

from __future__ import annotations

import io
import json
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest

from serving.errors import ModelLoadError
from serving.server import ModelServer

# The backend first: it makes Keras compute with torch.
pytest.importorskip("serving.backends.keras", exc_type=ImportError)
h5py = pytest.importorskip("h5py")
keras = pytest.importorskip("keras")
two_headed = pytest.importorskip("tests.serving.keras_models").two_headed

RNG = np.random.default_rng(5)
INPUTS = {
    "x": RNG.normal(size=(21, 6)).astype(np.float32),
    "tokens": RNG.integers(0, 5, (21, 9), dtype=np.int32),
}
CONFIG = 'backend: "keras" max_batch_size: 8 dynamic_batching { }'


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A model as .keras, as .h5 and its weights; and what it answers."""
    folder = tmp_path_factory.mktemp("keras")
    model = two_headed()
    model.compile("adam", "mse")
    for name in ("model.keras", "model.h5"):
        model.save(folder / name)
    model.save_weights(folder / "model.weights.h5")
    score, chance = model([INPUTS["x"], INPUTS["tokens"]], training=False)
    return folder, {"score": score.detach().numpy(), "chance": chance.detach().numpy()}


def write(tmp_path, name, content, config=CONFIG):
    folder = tmp_path / "m" / "1"
    folder.mkdir(parents=True)
    (folder.parent / "config.pbtxt").write_text(config)
    (folder / name).write_bytes(content)


@pytest.mark.parametrize("name", ["model.keras", "model.h5", "model.weights.h5"])
def test_a_model_is_served(tmp_path, files, name):
    folder, expected = files
    config = CONFIG
    if name == "model.weights.h5":
        config += 'parameters { key: "module" value { string_value: "tests.serving.keras_models:two_headed" } }'
    write(tmp_path, name, (folder / name).read_bytes(), config)
    with ModelServer(tmp_path) as server:
        metadata = server.metadata("m")
        assert [str(spec) for spec in metadata.inputs] == ["x float32[6]", "tokens int32[-1]"]
        assert [str(spec) for spec in metadata.outputs] == ["score float32[2]", "chance float32[1]"]
        outputs = server.infer("m", INPUTS)
        for key, array in expected.items():
            np.testing.assert_allclose(outputs[key], array, rtol=1e-5, atol=1e-6)
        for i in (0, 7):
            one = server.infer("m", {key: array[i : i + 1] for key, array in INPUTS.items()})
            assert all(one[key].tobytes() == outputs[key][i : i + 1].tobytes() for key in expected)


def test_the_file_alone_says_the_backend(tmp_path, files):
    write(tmp_path, "model.keras", (files[0] / "model.keras").read_bytes(), "")
    with ModelServer(tmp_path) as server:
        assert server.metadata("m").backend == "keras"


def test_operations_of_keras_are_served(tmp_path):
    x = keras.Input((3,), name="x")
    keras.Model(x, keras.ops.tanh(x) + 1.0).save(tmp_path / "model.keras")
    write(tmp_path / "repository", "model.keras", (tmp_path / "model.keras").read_bytes())
    with ModelServer(tmp_path / "repository") as server:
        (y,) = server.infer("m", {"x": INPUTS["x"][:, :3]}).values()
    np.testing.assert_allclose(y, np.tanh(INPUTS["x"][:, :3]) + 1, rtol=1e-6, atol=1e-6)


def test_precision_is_rough_where_asked(tmp_path, files):
    half = CONFIG + 'parameters { key: "precision" value { string_value: "bf16" } }'
    write(tmp_path, "model.keras", (files[0] / "model.keras").read_bytes(), half)
    with ModelServer(tmp_path) as server:
        difference = server.infer("m", INPUTS)["score"] - files[1]["score"]
        assert 0 < np.abs(difference).max() < 0.1


def archive(files, change):
    """The .keras file's bytes after `change(entries)`."""
    with zipfile.ZipFile(files[0] / "model.keras") as old:
        entries = {name: old.read(name) for name in old.namelist()}
    change(entries)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as new:
        for name, content in entries.items():
            new.writestr(name, content)
    return buffer.getvalue()


def with_layer(files, layer):
    """The .keras file with a layer's configuration in place of the second one."""

    def change(entries):
        config = json.loads(entries["config.json"])
        config["config"]["layers"][1] |= layer
        entries["config.json"] = json.dumps(config).encode()

    return archive(files, change)


def function(module, name):
    return {"module": module, "class_name": "function", "config": name, "registered_name": name}


ATTACKS = {
    "Lambda": {"class_name": "Lambda", "module": "keras.layers", "config": {"function": {"class_name": "__lambda__"}}},
    "TorchModuleWrapper": {"class_name": "TorchModuleWrapper", "module": "keras.layers", "config": {"module": "x"}},
    "TFSMLayer": {"class_name": "TFSMLayer", "module": "keras.layers", "config": {"filepath": "/tmp"}},
    "StringLookup": {"class_name": "StringLookup", "module": "keras.layers", "config": {"vocabulary": "/etc/passwd"}},
    "os:function": {"config": {"units": 1, "activation": function("os", "system")}},
    "builtins:function": {"config": {"units": 1, "activation": function("builtins", "eval")}},
    "keras.utils:function": {"config": {"units": 1, "activation": function("keras.utils", "get_file")}},
    "subprocess:Popen": {"class_name": "Popen", "module": "subprocess", "config": {"args": "true"}},
    "keras.src.ops.core:Map": {"class_name": "Map", "module": "keras.src.ops.core", "config": {}},
    "keras.layers:import_module": {"class_name": "import_module", "module": "keras.layers", "config": {}},
    "keras.layers:InputLayer": {"registered_name": "mine>Dense"},
}


@pytest.mark.parametrize("name", list(ATTACKS))
def test_a_file_that_carries_code_is_refused(tmp_path, files, name):
    write(tmp_path, "model.keras", with_layer(files, ATTACKS[name]))
    with pytest.raises(ModelLoadError, match=rf"model 'm': .*config.json: refused, .*{name}'"):
        ModelServer(tmp_path).start()


def test_a_lambda_that_keras_wrote_is_refused_and_not_run(tmp_path):
    for name in ("model.keras", "model.h5"):
        marker = tmp_path / f"ran-{name}"
        x = keras.Input((3,))
        model = keras.Model(x, keras.layers.Lambda(lambda x, path=str(marker): (Path(path).touch(), x)[1])(x))
        marker.unlink()
        model.save(tmp_path / name)
        marker.unlink(missing_ok=True)
        write(tmp_path / f"of-{name}", name, (tmp_path / name).read_bytes())
        with pytest.raises(ModelLoadError, match="Lambda"):
            ModelServer(tmp_path / f"of-{name}").start()
        assert not marker.exists()


def test_entries_and_links_that_lead_out_are_refused(tmp_path, files):
    pickled = archive(files, lambda entries: entries.update({"assets/x.pkl": pickle.dumps(1)}))
    write(tmp_path / "a", "model.keras", pickled)
    with pytest.raises(ModelLoadError, match=r"assets/x\.pkl: refused"):
        ModelServer(tmp_path / "a").start()
    for number, link in enumerate([h5py.ExternalLink("/etc/passwd", "/"), h5py.SoftLink("/")]):
        path = tmp_path / f"{number}.h5"
        path.write_bytes((files[0] / "model.h5").read_bytes())
        with h5py.File(path, "r+") as file:
            file["model_weights/away"] = link
        write(tmp_path / f"h5-{number}", "model.h5", path.read_bytes())
        with pytest.raises(ModelLoadError, match="away: refused, because it holds a link to elsewhere"):
            ModelServer(tmp_path / f"h5-{number}").start()
    with h5py.File(tmp_path / "raw.h5", "w") as file:
        file.create_dataset("x", (3,), "f4", external=[("/etc/passwd", 0, 12)])
    write(tmp_path / "raw", "model.h5", (tmp_path / "raw.h5").read_bytes())
    with pytest.raises(ModelLoadError, match="x: refused, because it holds numbers that lie in another file"):
        ModelServer(tmp_path / "raw").start()


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("model.keras", b"rubbish", "not a Keras model"),
        ("model.h5", b"rubbish", "not a Keras model"),
        ("model.txt", b"", "has no model.keras or model.h5"),
        ("model.weights.h5", None, "weights alone need a model: parameter 'module' is ''"),
    ],
)
def test_what_cannot_be_loaded_says_why(tmp_path, files, name, content, words):
    write(tmp_path, name, (files[0] / name).read_bytes() if content is None else content)
    with pytest.raises(ModelLoadError, match=words):
        ModelServer(tmp_path).start()
