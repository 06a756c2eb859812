"""The python backend itself: an instance of ``TritonPythonModel``."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import json
import logging
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from serving.backends.base import Backend, BackendRequest, Device, Models
from serving.backends.python.auto_config import AutoConfig
from serving.backends.python.config_dict import config_dict
from serving.backends.python.error import TritonError, TritonModelException, to_serving_error
from serving.backends.python.interface import make_utils
from serving.backends.python.modules import ModelModules
from serving.backends.python.request import InferenceRequest
from serving.backends.python.response import InferenceResponse
from serving.config import ModelConfig
from serving.errors import ExecutionError, ModelLoadError, ServingError
from serving.tensors import Tensors

log = logging.getLogger(__name__)

DEFAULT_FILE = "model.py"
CLASS_NAME = "TritonPythonModel"
_REFUSED_PARAMETERS = frozenset({"EXECUTION_ENV_PATH", "TRITON_BATCH_STRATEGY_PATH"})

_numbers = itertools.count()


class PythonBackend(Backend):
    """A model written in Python; a thread of this process executes it."""

    takes_requests: ClassVar[bool] = True

    def __init__(self) -> None:
        self._models: Models | None = None
        self._modules: ModelModules | None = None
        self._model: Any = None
        self._request: type[InferenceRequest] = InferenceRequest
        self._label = ""
        self._is_async = False
        self._runner: asyncio.Runner | None = None

    @classmethod
    def version(cls) -> str:
        """The versions of Python and numpy."""
        return f"python {platform.python_version()} numpy {np.__version__}"

    @classmethod
    def has_gpu(cls) -> bool:
        """Never: a Python model is told of a GPU only where the configuration asks for one."""
        return False

    @classmethod
    def fill_in(cls, folder: Path, message: Any) -> Any:
        """What the model's ``auto_complete_config`` makes of the configuration.

        Raises:
            ModelLoadError: The model's code fails, or contradicts the configuration.
        """
        utils = make_utils(message.name, folder, None)
        modules = ModelModules(folder, utils)
        try:
            method = getattr(_model_class(modules, message), "auto_complete_config", None)
            if method is None:
                return message
            filled = method(AutoConfig(message))
            if not isinstance(filled, AutoConfig):
                raise TypeError(f"it returned a {type(filled).__name__}, not the configuration")
            return filled.message
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise _load_error(message.name, "auto_complete_config failed", error) from error
        finally:
            modules.close()

    def connect(self, models: Models) -> None:
        """Keeps the models that the model's code may ask."""
        self._models = models

    def load(self, folder: Path, config: ModelConfig, device: Device, threads: int) -> None:
        """Imports the model and calls its ``initialize``.

        Raises:
            ModelLoadError: The file or class is missing, or its code fails.
        """
        for key in config.parameters:
            if key in _REFUSED_PARAMETERS:
                raise ModelLoadError(
                    f"model {config.name!r}: parameter {key!r} is not supported by this server",
                    field=f"parameters.{key}",
                )
        self._label = f"model {config.name!r} version {folder.name}"
        utils = make_utils(config.name, folder, self._models)
        self._request = utils.InferenceRequest
        self._modules = ModelModules(folder, utils)
        args = {
            "model_config": json.dumps(config_dict(config.message)),
            "model_instance_kind": device.kind.upper(),
            "model_instance_device_id": str(device.index),
            "model_instance_name": f"{config.name}_{next(_numbers)}",
            "model_repository": str(folder.parent),
            "model_version": folder.name,
            "model_name": config.name,
        }
        try:
            kind = _model_class(self._modules, config.message)
            self._is_async = inspect.iscoroutinefunction(kind.execute)
            self._model = kind()
            if hasattr(self._model, "initialize"):
                self._model.initialize(args)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            self._modules.close()
            self._model = None
            raise _load_error(config.name, "initialize failed", error) from error

    def execute(self, inputs: Tensors) -> Tensors:
        """Not used: this backend takes requests."""
        raise NotImplementedError

    def execute_requests(self, requests: Sequence[BackendRequest]) -> Sequence[Tensors | ServingError]:
        """Calls the model's ``execute``."""
        given = [self._request.of(request) for request in requests]
        try:
            responses = self._model.execute(given)
            if self._is_async:
                # A model whose code awaits has a loop of its own, in the instance's thread.
                self._runner = self._runner or asyncio.Runner()
                responses = self._runner.run(responses)
        except SystemExit as error:
            raise ExecutionError(f"execute called exit({error.code})") from error
        except BaseException as error:  # the model's own: this thread is the instance's, nobody interrupts it
            raise ExecutionError(f"{type(error).__name__}: {error}{_place(error)}") from error
        if responses is None:
            responses = [None] * len(given)
        if not isinstance(responses, Sequence) or len(responses) != len(given):
            have = f"{len(responses)} responses" if isinstance(responses, Sequence) else type(responses).__name__
            raise ExecutionError(f"execute returned {have} for {len(given)} requests")
        return [self._outcome(request, response) for request, response in zip(given, responses, strict=True)]

    def _outcome(self, request: InferenceRequest, response: object) -> Tensors | ServingError:
        if response is None:
            response = request.sent
        if not isinstance(response, InferenceResponse):
            found = "no response" if response is None else f"a {type(response).__name__}"
            return ExecutionError(f"{self._label}: execute gave {found} for a request, not an InferenceResponse")
        error = response.error()
        if isinstance(error, TritonError):
            return to_serving_error(error, self._label)
        return {tensor.name(): np.ascontiguousarray(tensor.on_host()) for tensor in response.output_tensors()}

    def unload(self) -> None:
        """Calls the model's ``finalize`` and forgets it."""
        model, self._model = self._model, None
        if hasattr(model, "finalize"):
            try:
                model.finalize()
            except BaseException:  # whatever the model raises, the others must be let go of
                log.exception("%s: finalize failed", self._label)
        if self._runner is not None:
            self._runner.close()
        if self._modules is not None:
            self._modules.close()


def _model_class(modules: ModelModules, message: Any) -> Any:
    file = message.default_model_filename or DEFAULT_FILE
    try:
        module = modules.load(file)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise _load_error(message.name, f"{file} failed", error) from error
    kind = getattr(module, CLASS_NAME, None)
    if not isinstance(kind, type) or not callable(getattr(kind, "execute", None)):
        raise ModelLoadError(f"{module.__file__} has no class {CLASS_NAME} with a method execute")
    return kind


def _load_error(model: str, what: str, error: BaseException) -> ModelLoadError:
    if isinstance(error, ModelLoadError):
        message = error.message if error.message.startswith("model ") else f"model {model!r}: {error.message}"
        return ModelLoadError(message, field=error.field)
    text = str(error) if isinstance(error, TritonModelException) else f"{type(error).__name__}: {error}"
    return ModelLoadError(f"model {model!r}: {what}: {text}{_place(error)}")


def _place(error: BaseException) -> str:
    """Where in the model's code an error came from: the last line of it that is no library's."""
    trace, place = error.__traceback__, ""
    while trace is not None:
        if trace.tb_frame.f_globals.get("__package__", "").startswith("_cohortflow_python_model_"):
            place = f" ({Path(trace.tb_frame.f_code.co_filename).name}, line {trace.tb_lineno})"
        trace = trace.tb_next
    return place
