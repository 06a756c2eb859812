"""What runs a model file, by the backend's name in its configuration."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import entry_points

from serving.backends.base import Backend
from serving.errors import ModelLoadError

ENTRY_POINT_GROUP = "cohortflow.backends"

# Imported when a model asks for them: torch alone takes seconds and hundreds of megabytes.
_BUILT_IN = {
    "onnxruntime": ("serving.backends.onnxruntime", "OnnxRuntimeBackend"),
    "torch": ("serving.backends.torch", "TorchBackend"),
    "python": ("serving.backends.python.backend", "PythonBackend"),
    "keras": ("serving.backends.keras", "KerasBackend"),
    "tensorrt": ("serving.backends.tensorrt", "TensorRtBackend"),
    "tensorflow": ("serving.backends.tensorflow", "TensorFlowBackend"),
    "convolution": ("serving.backends.convolution.backend", "ConvolutionBackend"),
}


def find_backend(name: str, model: str) -> type[Backend]:
    """The class of a backend: one of ours, else one that an installed package offers as an entry point.

    Raises:
        ModelLoadError: There is none of that name, or it cannot be imported; the message names `model`.
    """
    if name in _BUILT_IN:
        module, attribute = _BUILT_IN[name]
        try:
            return getattr(import_module(module), attribute)  # type: ignore[no-any-return]
        except ImportError as error:
            raise ModelLoadError(
                f"model {model!r}: backend {name!r} cannot be used here: {error}", field="backend"
            ) from error
    offered = {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}
    if name not in offered:
        raise ModelLoadError(
            f"model {model!r}: no backend {name!r}; there are {', '.join(sorted([*_BUILT_IN, *offered]))}",
            field="backend",
        )
    try:
        backend = offered[name].load()
    except Exception as error:
        raise ModelLoadError(
            f"model {model!r}: backend {name!r} cannot be imported: {error}", field="backend"
        ) from error
    if not (isinstance(backend, type) and issubclass(backend, Backend)):
        raise ModelLoadError(
            f"model {model!r}: backend {name!r} ({offered[name].value}) is no Backend", field="backend"
        )
    return backend
