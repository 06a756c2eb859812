"""The tensorflow backend: SavedModels, and such as reach for files."""

from __future__ import annotations

import numpy as np
import pytest

from serving.errors import ModelLoadError
from serving.server import ModelServer

tf = pytest.importorskip("tensorflow")

X = np.random.default_rng(1).normal(size=(9, 3)).astype(np.float32)
CONFIG = 'platform: "tensorflow_savedmodel" max_batch_size: 8 dynamic_batching { }'


class Affine(tf.Module):
    """y = x @ w, and a name echoed."""

    def __init__(self):
        self.w = tf.Variable(np.arange(6, dtype=np.float32).reshape(3, 2))

    @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32), tf.TensorSpec([None, 1], tf.string)])
    def __call__(self, x, name):
        return {"y": x @ self.w, "echo": name}


class Reader(tf.Module):
    """Reads a file."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def __call__(self, path):
        return {"text": tf.map_fn(tf.io.read_file, path)}


class Caller(tf.Module):
    """Calls Python."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32)])
    def __call__(self, x):
        return {"y": tf.numpy_function(lambda x: x, [x], tf.float32)}


def save(tmp_path, module, config=CONFIG):
    folder = tmp_path / "m" / "1" / "model.savedmodel"
    folder.mkdir(parents=True)
    (tmp_path / "m" / "config.pbtxt").write_text(config)
    tf.saved_model.save(module, str(folder), signatures={"serving_default": module.__call__})


def test_a_saved_model_with_text(tmp_path):
    save(tmp_path, Affine())
    names = np.array([[f"row {i}".encode()] for i in range(9)], object)
    with ModelServer(tmp_path) as server:
        assert {str(spec) for spec in server.metadata("m").inputs} == {"x float32[3]", "name bytes[1]"}
        outputs = server.infer("m", {"x": X, "name": names})
    np.testing.assert_allclose(outputs["y"], X @ np.arange(6, dtype=np.float32).reshape(3, 2), rtol=1e-5, atol=1e-6)
    assert outputs["echo"].tolist() == names.tolist()


@pytest.mark.parametrize(
    ("module", "config", "words"),
    [
        (Reader, CONFIG, "refused, because it has the operation 'ReadFile'"),
        (Caller, CONFIG, r"refused, because it has the operation '\w*PyFunc'"),
        (Affine, CONFIG + 'default_model_filename: "absent"', r"absent/saved_model\.pb is missing"),
        (
            Affine,
            CONFIG + 'parameters { key: "TF_SIGNATURE_DEF" value { string_value: "other" } }',
            "no signature 'other'; it has serving_default",
        ),
        (Affine, CONFIG + "instance_group { kind: KIND_GPU gpus: 9 }", "sees 0 GPUs"),
        (
            Affine,
            CONFIG + 'parameters { key: "precision" value { string_value: "bf16" } }',
            "'precision' is 'bf16', which the tensorflow backend has not",
        ),
    ],
)
def test_what_cannot_be_served_says_why(tmp_path, module, config, words):
    save(tmp_path, module(), config)
    with pytest.raises(ModelLoadError, match=words):
        ModelServer(tmp_path).start()
