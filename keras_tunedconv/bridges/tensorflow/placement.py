"""What TensorFlow will do with an op that is made now: where it runs, compiled by XLA or not, how exactly.

Some of it is only to be had from modules that TensorFlow does not document; where one of them has moved,
the usual case is assumed.
"""

from __future__ import annotations

from functools import lru_cache

import tensorflow as tf

try:
    from tensorflow.python.eager import context as _context
    from tensorflow.python.framework import config as _config
    from tensorflow.python.framework import ops as _ops
    from tensorflow.python.ops import control_flow_util as _control_flow
except ImportError:  # pragma: no cover - no released TensorFlow lacks them
    _context = _config = _ops = _control_flow = None


# The op's kernels are in this process only, and for CPUs and GPUs only.
_FOREIGN_STRATEGIES = (
    tf.distribute.TPUStrategy,
    tf.distribute.experimental.TPUStrategy,
    tf.distribute.ParameterServerStrategy,
)


@lru_cache(maxsize=1)
def _has_gpu() -> bool:
    # The devices of a process are fixed once its first tensor was made.
    return bool(tf.config.list_logical_devices("GPU"))


def device_of_call() -> str | None:
    """Where TensorFlow places an op made here that has kernels for CPUs and GPUs.

    Returns:
        `"cuda"`, `"cpu"`, or `None` where the op would be sent to a machine that does not have it.
    """
    if not tf.executing_eagerly() and isinstance(tf.distribute.get_strategy(), _FOREIGN_STRATEGIES):
        return None
    if not _has_gpu():
        return "cpu"
    return "cpu" if "CPU:" in _requested_device().upper() else "cuda"


def _requested_device() -> str:
    """The device that a `tf.device` block names, `""` outside of one."""
    if tf.executing_eagerly():
        return (_context.context().device_name or "") if _context else ""
    # An operation takes on the device of its surroundings; this one does nothing and is pruned.
    return str(tf.raw_ops.NoOp().device)


def in_xla_context() -> bool:
    """Whether a function is being traced that `jit_compile=True` will have XLA compile."""
    if _control_flow is None or tf.executing_eagerly():
        return False
    return bool(_control_flow.GraphOrParentsInXlaContext(_ops.get_default_graph()))


def op_determinism() -> bool:
    """Whether `tf.config.experimental.enable_op_determinism` is in force."""
    return bool(_config.is_op_determinism_enabled()) if _config else False


def allow_tf32() -> bool:
    """Whether float32 products may be rounded to TF32 on GPUs."""
    return bool(tf.config.experimental.tensor_float_32_execution_enabled())
