"""Tell Keras about the layers as soon as both packages are imported, in whichever order.

`keras.models.load_model` finds a layer by the name it is registered under, which takes the import of the
layer's module, and that takes Keras. Importing Keras from here would bring a backend into tools that
only read files (`keras-tunedconv inspect`), so registering waits until somebody else imports it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

_LAYERS = "keras_tunedconv.layers.tuned_conv2d"


def register_layers() -> None:
    """Register the layers now if Keras is imported, else right after it is."""
    if "keras" in sys.modules:
        import_module(_LAYERS)
    elif not any(isinstance(finder, _AfterKeras) for finder in sys.meta_path):
        sys.meta_path.insert(0, _AfterKeras())


class _AfterKeras(MetaPathFinder):
    """Leaves finding Keras to the other finders, and registers the layers once it is loaded."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "keras":
            return None
        sys.meta_path.remove(self)
        spec = find_spec("keras")
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


class _Loader(Loader):
    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        import_module(_LAYERS)
