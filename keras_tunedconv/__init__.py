"""Keras 3 convolution layers that measure the algorithms of cuDNN and oneDNN once and keep the result.

```python
from keras_tunedconv import TunedConv2D, TuningCallback
```

Names are loaded when they are first used, so that importing the package costs little and command-line
tools that only read files never import a Keras backend.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from keras_tunedconv.registration import register_layers

__version__ = "0.1.0"

if TYPE_CHECKING:
    from keras_tunedconv.ahead import warm_up as warm_up
    from keras_tunedconv.callback import TuningCallback as TuningCallback
    from keras_tunedconv.convert import to_stock as to_stock
    from keras_tunedconv.convert import to_tuned as to_tuned
    from keras_tunedconv.core.config import config as config
    from keras_tunedconv.core.errors import TunedConvError as TunedConvError
    from keras_tunedconv.core.errors import TuningWarning as TuningWarning
    from keras_tunedconv.core.override import override as override
    from keras_tunedconv.core.registry import stats as stats
    from keras_tunedconv.filling import fill as fill
    from keras_tunedconv.layers.tuned_conv2d import TunedConv2D as TunedConv2D
    from keras_tunedconv.reporting import report as report
    from keras_tunedconv.saving import save_model as save_model
    from keras_tunedconv.saving import save_weights as save_weights

_HOMES = {
    "TunedConv2D": "keras_tunedconv.layers.tuned_conv2d",
    "TuningCallback": "keras_tunedconv.callback",
    "TuningWarning": "keras_tunedconv.core.errors",
    "TunedConvError": "keras_tunedconv.core.errors",
    "config": "keras_tunedconv.core.config",
    "fill": "keras_tunedconv.filling",
    "override": "keras_tunedconv.core.override",
    "report": "keras_tunedconv.reporting",
    "save_model": "keras_tunedconv.saving",
    "save_weights": "keras_tunedconv.saving",
    "stats": "keras_tunedconv.core.registry",
    "to_stock": "keras_tunedconv.convert",
    "to_tuned": "keras_tunedconv.convert",
    "warm_up": "keras_tunedconv.ahead",
}

register_layers()

__all__ = ["__version__", *_HOMES]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
