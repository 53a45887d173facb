"""JAX's persistent compilation cache: a second process compiles nothing anew.

Programs that the partitioner splits by itself need `jax_remove_custom_partitioning_ptr_from_cache_key`: JAX
puts an address into their key, for any `custom_partitioning`. Under Keras's `DataParallel` and for meshes
with explicit axes the split is known beforehand and there is none.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

if os.environ["KERAS_BACKEND"] != "jax":
    pytest.skip("needs KERAS_BACKEND=jax", allow_module_level=True)

BEGIN = """
import collections
import jax, jax.numpy as jnp, keras, numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from keras_tunedconv.bridges import convolution
from keras_tunedconv.bridges.jax.targets import TARGET

x, w = np.ones((4, 8, 8, 4), np.float32), np.ones((3, 3, 4, 8), np.float32)
arguments = dict(strides=(1, 1), padding="same", data_format="channels_last", groups=1)

def step_of(dilation):
    def loss(x, w):
        return jnp.sum(convolution(x, w, **arguments, dilation_rate=(dilation, dilation)))
    return jax.jit(jax.grad(loss, (0, 1)))

def split(mesh, axis):
    specs = PartitionSpec(axis), PartitionSpec()
    return [jax.device_put(a, NamedSharding(mesh, spec)) for a, spec in zip((x, w), specs)]

counts = collections.Counter()
jax.monitoring.register_event_listener(lambda event, **_: counts.update([event.rsplit("/", 1)[-1]]))
"""
OPERANDS = {
    "one device": "operands = x, w",
    "DataParallel": """
distribution = keras.distribution.DataParallel()
keras.distribution.set_distribution(distribution)
operands = split(distribution.device_mesh.backend_mesh, distribution.batch_dim_name)
""",
    "explicit axes": """
mesh = jax.make_mesh((2,), ("images",), axis_types=(AxisType.Explicit,))
jax.set_mesh(mesh)
operands = split(mesh, "images")
""",
    "automatic axes": """
operands = split(jax.make_mesh((2,), ("images",), axis_types=(AxisType.Auto,)), "images")
""",
}
END = """
counts.clear()
compiled = step_of(1).lower(*operands).compile()
assert TARGET in compiled.as_text()
jax.block_until_ready(compiled(*operands))
print("hits", counts["cache_hits"], "misses", counts["cache_misses"])
"""
OTHERS = """
for dilation in (1, 2, 3):
    gradients = step_of(dilation)(*operands)
    alone = step_of(dilation)(x, w)
    for received, expected in zip(gradients, alone):
        np.testing.assert_allclose(received, expected, rtol=1e-5)
"""
IGNORE_ADDRESS = {"JAX_REMOVE_CUSTOM_PARTITIONING_PTR_FROM_CACHE_KEY": "1"}


def run(program, folder, devices, **more):
    environment = os.environ | {
        "JAX_COMPILATION_CACHE_DIR": str(folder),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
        "KERAS_TUNEDCONV_KEY_BUDGET": "0.02",
    }
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment | more, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.strip()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("split", "devices", "settings"),
    [
        ("one device", 1, {}),
        ("one device", 2, {}),
        ("DataParallel", 1, {}),
        ("DataParallel", 2, {}),
        ("explicit axes", 2, {}),
        ("automatic axes", 2, IGNORE_ADDRESS),
    ],
)
def test_a_second_process_finds_the_program(split, devices, settings, tmp_path):
    program = BEGIN + OPERANDS[split] + END
    outputs = [run(program, tmp_path, devices, **settings) for _ in range(2)]
    assert outputs == ["hits 0 misses 1", "hits 1 misses 0"]


def test_convolutions_of_equal_shapes_are_told_apart_where_addresses_are_ignored(tmp_path):
    run(BEGIN + OPERANDS["automatic axes"] + OTHERS, tmp_path, 2, **IGNORE_ADDRESS)
    assert any(tmp_path.iterdir())
