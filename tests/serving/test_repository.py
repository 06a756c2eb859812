"""Configurations and folders: what is completed, and what is refused by its name."""

from __future__ import annotations

import os
import pickle

import numpy as np
import pytest

import serving.errors
from serving.errors import ModelLoadError, NotFoundError, ServingError
from serving.repository import list_models, read_model
from serving.server import ModelServer
from tests.serving.models import ENSEMBLE_CONFIG, affine, token_mean, write_ensemble, write_model


def load(tmp_path, config, graph=None, name="m"):
    write_model(tmp_path, name, graph or affine(), config)
    with ModelServer(tmp_path) as server:
        return server.metadata(name)


def test_a_model_file_alone_is_enough(tmp_path):
    (tmp_path / "m").mkdir()
    metadata = load(tmp_path, "", token_mean())
    assert metadata.max_batch_size == 4
    assert [str(spec) for spec in metadata.inputs] == ["tokens uint8[-1]", "state float32[1]"]
    assert metadata.backend == "onnxruntime"
    (tmp_path / "m" / "config.pbtxt").unlink()
    with ModelServer(tmp_path) as server:
        assert server.metadata("m") == metadata


def test_listed_tensors_are_completed(tmp_path):
    metadata = load(tmp_path, 'max_batch_size: 8 input { name: "x" } output { name: "y" data_type: TYPE_FP32 }')
    assert [str(spec) for spec in (*metadata.inputs, *metadata.outputs)] == ["x float32[4]", "y float32[3]"]


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("max_batch_size: 8 sequence_batching { }", "sequence_batching is not supported"),
        (
            'max_batch_size: 8 input { name: "x" allow_ragged_batch: true }',
            "input.allow_ragged_batch of 'x' is not supported",
        ),
        ('max_batch_size: 8 input { name: "x" optional: true }', "input.optional of 'x' is not supported"),
        (
            'max_batch_size: 8 input { name: "x" dims: 4 reshape { shape: [ 2, 2 ] } }',
            r"but the model file has TYPE_FP32 \[4\]",
        ),
        (
            'max_batch_size: 8 input { name: "x" dims: [ 3 ] reshape { shape: 4 } }',
            r"reshape \[4\] does not hold as many elements as dims \[3\]",
        ),
        ('max_batch_size: 8 input { name: "x" format: FORMAT_NCHW }', "a format is that of 3 dims"),
        ("instance_group { rate_limiter { } }", "instance_group.rate_limiter is not supported"),
        ("instance_group { kind: KIND_MODEL }", "instance_group.kind KIND_MODEL is not supported"),
        ("model_transaction_policy { decoupled: true }", "model_transaction_policy.decoupled is not supported"),
        ("optimization { cuda { graphs: true } }", "optimization.cuda is not supported"),
        (
            'optimization { execution_accelerators { cpu_execution_accelerator { name: "x" } } }',
            "accelerator 'x' is not",
        ),
        (
            'cc_model_filenames { key: "7.5" value: "x.onnx" }',
            "cc_model_filenames is not supported by this server for the backend 'onnxruntime'",
        ),
        ('backend: "tensorrt"', r"backend 'tensorrt' cannot be used here: it needs the package tensorrt"),
        ('platform: "caffe2_netdef"', "platform 'caffe2_netdef' is not supported"),
        ('backend: "mystery"', "no backend 'mystery'; there are"),
        ('name: "other"', "name is 'other', but the model is 'm'"),
        ("max_batch_size: -1", "max_batch_size is -1"),
        ("max_batch_sise: 1", r"config.pbtxt: 1:1 : .*no field named"),
        ("max_batch_size: 4 dynamic_batching { preferred_batch_size: 8 }", "preferred_batch_size 8 is not within 1-4"),
        ("max_batch_size: 4 dynamic_batching { priority_levels: 2 }", "default_priority_level 0 is not within 1-2"),
        ("max_batch_size: 4 dynamic_batching { priority_queue_policy { key: 1 value { } } }", "has level 1, but"),
        ('max_batch_size: 4 input { name: "z" }', "input 'z' is not in the model file, which has x"),
        (
            'max_batch_size: 4 input { name: "x" dims: 5 }',
            r"is TYPE_FP32 \[5\], but the model file has TYPE_FP32 \[4\]",
        ),
        ('max_batch_size: 4 input { name: "x" data_type: TYPE_STRING dims: 4 }', "TYPE_STRING"),
        ("version_policy { specific { versions: 7 } }", "asks for 7, the folder has 1"),
        ('default_model_filename: "absent.onnx"', "absent.onnx is missing"),
        (
            'max_batch_size: 4 parameters { key: "execution_mode" value { string_value: "1" } }',
            "'execution_mode' is not",
        ),
        ("max_batch_size: 4 optimization { graph { level: 9 } }", "optimization.graph.level 9"),
        ("max_batch_size: 4 instance_group { kind: KIND_GPU }", "CUDAExecutionProvider"),
        ("instance_group { count: 100000 }", "instance_group.count is 100000, not within 0-1024"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(tmp_path, config, words):
    with pytest.raises(ModelLoadError, match=words) as caught:
        load(tmp_path, config)
    assert "model 'm'" in str(caught.value)


@pytest.mark.parametrize("file", ["config.pbtxt", "routing.json"])
@pytest.mark.parametrize("kind", ["pipe", "folder", "link"])
def test_what_is_no_file_is_refused_and_not_waited_for(tmp_path, file, kind):
    write_model(tmp_path, "m", affine(), "max_batch_size: 4")
    path = tmp_path / "m" / file
    path.unlink(missing_ok=True)
    make = {"pipe": os.mkfifo, "folder": os.mkdir, "link": lambda path: os.symlink("nowhere", path)}[kind]
    make(path)
    with pytest.raises(ModelLoadError, match=rf"model 'm': .*{file}: is not a file"):
        ModelServer(tmp_path).start()


def test_a_fixed_batch_dimension_cannot_batch(tmp_path):
    with pytest.raises(ModelLoadError, match="the model file fixes the first dimension of x"):
        load(tmp_path, "max_batch_size: 8", affine(batch=2))


def test_a_file_that_is_no_model(tmp_path):
    folder = write_model(tmp_path, "m", None, "max_batch_size: 4")
    (folder / "model.onnx").write_bytes(b"rubbish")
    with pytest.raises(ModelLoadError, match="onnxruntime cannot load it"):
        ModelServer(tmp_path).start()


def test_versions_are_whole_numbers_without_leading_zero(tmp_path):
    for version in ("1", "2", "03", "0", "x", "10"):
        write_model(tmp_path, "m", affine(), "version_policy { all { } }", version)
    assert read_model(tmp_path, "m").versions == (1, 2, 10)
    assert list_models(tmp_path) == ["m"]
    with pytest.raises(NotFoundError, match=r"no model 'n' in .*; it has m"):
        read_model(tmp_path, "n")
    with pytest.raises(ModelLoadError, match=r"not a folder"):
        ModelServer(tmp_path / "absent").start()


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            'value: "reference_window"',
            'value: "nothing"',
            r"step 1 \(embedder\): input 'tokens': .* no step gives the tensor 'nothing'",
        ),
        ('key: "tokens" value: "alternate', 'key: "token" value: "alternate', r"step 2 \(embedder\): no input 'token'"),
        ('model_name: "effect"', 'model_name: "absent"', "absent"),
        ('value: "alternate_embedding" } },', 'value: "reference_embedding" } },', "already comes from step 1"),
        (
            'input_map { key: "reference" value: "reference_embedding" }',
            "",
            r"step 3 \(effect\): input 'reference' is missing",
        ),
        ('"state" data_type: TYPE_FP32', '"state" data_type: TYPE_FP64', "'state': is float32"),
        (
            'name: "effect" data_type: TYPE_FP32 dims: [ 1 ]',
            'name: "effect" data_type: TYPE_FP32 dims: [ 2 ]',
            "output 'effect'",
        ),
        ('key: "state" value: "state"', 'key: "state" value: "effect"', "wait for each other"),
        ("max_batch_size: 8", "max_batch_size: 0", "max_batch_size must be 0 for the ensemble and all its steps"),
        ("model_version: -1", "model_version: 9", "no version 9"),
        ('model_name: "effect"', 'model_name: "variants"', "contains itself"),
    ],
)
def test_an_ensemble_that_does_not_fit_says_where(tmp_path, old, new, words):
    write_ensemble(tmp_path)
    assert old in ENSEMBLE_CONFIG
    (tmp_path / "variants" / "config.pbtxt").write_text(ENSEMBLE_CONFIG.replace(old, new))
    with pytest.raises(ModelLoadError, match=words):
        ModelServer(tmp_path).start()


def test_an_ensemble_needs_no_version_folder(tmp_path):
    write_ensemble(tmp_path)
    (tmp_path / "variants" / "1").rmdir()
    with ModelServer(tmp_path) as server:
        assert server.version("variants") == 1


def test_a_step_with_other_weights_changes_the_ensembles_digest(tmp_path):
    digests = set()
    for embedder in (token_mean(), token_mean()):
        write_ensemble(tmp_path)
        write_model(tmp_path, "embedder", embedder, "max_batch_size: 8")
        with ModelServer(tmp_path) as server:
            digests.add(server.digest("variants"))
    assert len(digests) == 1
    (tmp_path / "embedder" / "1" / "notes.txt").write_text("a file more")
    with ModelServer(tmp_path) as server:
        assert server.digest("variants") not in digests


def test_errors_survive_pickling():
    kinds = [
        kind for kind in vars(serving.errors).values() if isinstance(kind, type) and issubclass(kind, ServingError)
    ]
    assert len(kinds) == 16
    for kind in kinds:
        again = pickle.loads(pickle.dumps(kind("model 'm': words", field="x")))
        assert (type(again), again.message, again.field) == (kind, "model 'm': words", "x")


def test_two_models_of_one_name_in_two_servers(tmp_path):
    for bias in (1.0, 2.0):
        write_model(tmp_path / str(bias), "m", affine(bias=bias), "max_batch_size: 4")
    x = {"x": np.zeros((1, 4), np.float32)}
    with ModelServer(tmp_path / "1.0") as one, ModelServer(tmp_path / "2.0") as two:
        assert one.infer("m", x)["y"][0, 0] == 1
        assert two.infer("m", x)["y"][0, 0] == 2
