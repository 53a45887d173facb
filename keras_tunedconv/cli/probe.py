"""What may crash a process, run in one of its own: `python -m keras_tunedconv.cli.probe NAME [ARGUMENT]`.

Opening a foreign library or importing a framework can end in a signal instead of an exception. Each probe
prints one line of JSON, and whoever called it outlives the rest.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import Any

TIMEOUT_SECONDS = 120.0
# The result's line begins with it; frameworks print lines of their own.
_MARK = "keras-tunedconv-probe:"


def run(name: str, argument: str = "", *, environment: dict[str, str] | None = None) -> dict[str, Any]:
    """Run a probe in a fresh process.

    Args:
        name: One of `PROBES`.
        argument: Its argument.
        environment: Variables added to this process's.

    Returns:
        What the probe found, or `{"problem": ...}` when it failed, crashed or hung.
    """
    command = [sys.executable, "-m", __spec__.name, name, argument]
    variables = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **(environment or {})}
    try:
        process = subprocess.run(
            command, env=variables, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return {"problem": f"gave no answer within {TIMEOUT_SECONDS:.0f} seconds"}
    except OSError as error:
        return {"problem": f"could not be started: {error}"}
    for line in reversed(process.stdout.splitlines()):
        if line.startswith(_MARK):
            found: dict[str, Any] = json.loads(line.removeprefix(_MARK))
            return found
    return {"problem": _describe_end(process.returncode, process.stderr)}


def _describe_end(status: int, errors: str) -> str:
    last = (errors.strip().splitlines() or ["it printed nothing"])[-1]
    if status < 0:
        try:
            return f"ended by {signal.Signals(-status).name}; last line: {last}"
        except ValueError:
            return f"ended by signal {-status}; last line: {last}"
    return f"ended with status {status}; last line: {last}"


def core(_: str) -> dict[str, Any]:
    """The compiled core: its file and what it was built with."""
    from keras_tunedconv.core.library import ffi, lib, unavailable_reason

    if lib is None:
        return {"problem": unavailable_reason()}
    import keras_tunedconv._core as extension

    api = lib.tc_get_api()
    handler = api.xla_handler_host != ffi.NULL
    return {"file": extension.__file__, "abi_version": int(api.abi_version), "xla_handler": bool(handler)}


def engine(name: str) -> dict[str, Any]:
    """An engine: the library it opens when no framework has brought one along."""
    from keras_tunedconv.core import engines

    device = next(device for device, known in engines.ENGINES.items() if known == name)
    try:
        engines.ensure_open(device)
        found = {"library": engines.describe(name)}
    except RuntimeError as error:
        return {"problem": str(error)}
    try:
        found["environment"] = engines.environment(device)
    except RuntimeError as error:
        found["problem"] = str(error)
    return found


def backend(_: str) -> dict[str, Any]:
    """One small convolution through the bridge of the active Keras backend."""
    import warnings

    import keras
    import numpy as np

    from keras_tunedconv import bridges
    from keras_tunedconv.core import engines, registry
    from keras_tunedconv.core.library import lib

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        x, w = (keras.ops.convert_to_tensor(np.ones(s, "float32")) for s in ((2, 8, 8, 4), (3, 3, 4, 8)))
        y = bridges.convolution(
            x, w, strides=(1, 1), padding="same", data_format="channels_last", dilation_rate=(1, 1), groups=1
        )
        ran = y is not None and float(keras.ops.max(y)) == 36.0
    counts = registry.stats()
    engine_ran = counts["measured"] + counts["hits"] + counts["defaults"] > 0
    opened = [
        name for name in engines.ENGINES.values() if lib is not None and lib.tc_engine_is_open(name.encode())
    ]
    found: dict[str, Any] = {
        "keras": keras.__version__,
        "tuned": bool(ran and engine_ran),
        "algorithms": [record.algorithm for record in registry.collect()[0]],
        "libraries": [engines.describe(name) for name in opened],
    }
    if not found["tuned"]:
        found["problem"] = "; ".join(str(w.message) for w in caught) or "Keras's own convolution ran"
    return found


def tensorflow_op(_: str) -> dict[str, Any]:
    """Whether the op is built for the installed TensorFlow, and where."""
    from keras_tunedconv.bridges.tensorflow import build, compiler

    found = compiler.find_compiler()
    library = build.find(build.make_recipe(), found)
    answer: dict[str, Any] = {"built": library is not None, "compiler": found.identity if found else None}
    if library is None:
        answer["problem"] = "it is not built yet; the first use builds it"
    else:
        answer |= {"path": str(library), "xla": build.has_xla(library)}
    return answer


PROBES = {"core": core, "engine": engine, "backend": backend, "tensorflow_op": tensorflow_op}


def main() -> None:
    """Run the probe named on the command line."""
    name, argument = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""
    try:
        found = PROBES[name](argument)
    except Exception as error:
        found = {"problem": f"{type(error).__name__}: {error}"}
    print(_MARK + json.dumps(found, default=str), flush=True)


if __name__ == "__main__":
    main()
