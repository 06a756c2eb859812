"""The modules of one instance of a Python model: nobody else imports them, nor sees their globals.

``import`` in a model's code looks first for ``triton_python_backend_utils``, then for a file of the version's folder,
then where Python itself looks. Files of the folder are loaded once for each instance, under names that no other
instance has, so that two models, versions or instances with a ``utils.py`` never meet. Their bytecode is neither read
nor written: the folder's files are what the execution digest says.
"""

from __future__ import annotations

import builtins
import importlib
import importlib.abc
import importlib.machinery
import itertools
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from serving.backends.python.interface import UTILS_NAME, check_names
from serving.errors import ModelLoadError

_numbers = itertools.count()


class ModelModules:
    """The modules of an instance.

    Args:
        folder: The version's folder.
        utils: What ``import triton_python_backend_utils`` gives.
    """

    def __init__(self, folder: Path, utils: ModuleType) -> None:
        self._folder = folder
        self._utils = utils
        self._root = f"_cohortflow_python_model_{next(_numbers)}"
        self._builtins = dict(vars(builtins)) | {"__import__": self._import}
        package = ModuleType(self._root)
        package.__path__ = [str(folder)]
        sys.modules[self._root] = package
        _FINDER.makers[self._root] = self._make_loader

    def load(self, file: str) -> ModuleType:
        """Executes a file of the folder.

        Raises:
            ModelLoadError: It is missing.
            BaseException: What the code raises.
        """
        path = self._folder / file
        if not path.is_file():
            raise ModelLoadError(f"{path} is missing", field="default_model_filename")
        name = f"{self._root}.{path.stem}"
        loader = self._make_loader(name, str(path))
        module = ModuleType(name)
        module.__spec__ = ModuleSpec(name, loader, origin=str(path))
        module.__file__ = str(path)
        module.__package__ = self._root
        sys.modules[name] = module
        loader.exec_module(module)
        return module

    def close(self) -> None:
        """Forgets the modules."""
        _FINDER.makers.pop(self._root, None)
        for name in [name for name in sys.modules if name == self._root or name.startswith(f"{self._root}.")]:
            sys.modules.pop(name, None)

    def _make_loader(self, name: str, path: str) -> SourceFileLoader:
        return _Loader(name, path, self._builtins)

    def _import(
        self,
        name: str,
        globals: Mapping[str, Any] | None = None,
        locals: Mapping[str, Any] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        """What an import statement of the model's code calls."""
        if level == 0 and name == UTILS_NAME:
            return self._utils
        top = name.partition(".")[0]
        if level == 0 and self._has(top):
            whole = importlib.import_module(f"{self._root}.{name}")
            if not fromlist:
                return sys.modules[f"{self._root}.{top}"]
            return __import__(whole.__name__, globals, locals, fromlist, 0)
        return __import__(name, globals, locals, fromlist or (), level)

    def _has(self, top: str) -> bool:
        return f"{self._root}.{top}" in sys.modules or PathFinder.find_spec(top, [str(self._folder)]) is not None


class _Loader(SourceFileLoader):
    """Executes a file with the instance's own ``import``."""

    def __init__(self, name: str, path: str, its_builtins: dict[str, Any]) -> None:
        super().__init__(name, path)
        self._builtins = its_builtins

    def get_code(self, fullname: str) -> CodeType:
        """The file's code, compiled now."""
        path = self.get_filename(fullname)
        source = self.get_data(path)
        check_names(source.decode("utf-8"), Path(path))
        code: CodeType = self.source_to_code(source, path)
        return code

    def exec_module(self, module: ModuleType) -> None:
        """Executes it."""
        module.__dict__["__builtins__"] = self._builtins
        super().exec_module(module)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the modules of every instance, by their names' root."""

    def __init__(self) -> None:
        self.makers: dict[str, Callable[[str, str], SourceFileLoader]] = {}

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """The spec of a module of an instance, with the instance's loader."""
        make = self.makers.get(name.partition(".")[0])
        if make is None or path is None:
            return None
        spec = PathFinder.find_spec(name, path)
        if spec is not None and isinstance(spec.loader, SourceFileLoader) and spec.origin is not None:
            spec.loader = make(name, spec.origin)
            spec.cached = None
        return spec


_FINDER = _Finder()
sys.meta_path.insert(0, _FINDER)
