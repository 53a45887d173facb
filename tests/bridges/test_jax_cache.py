"""JAX's persistent compilation cache: a second process compiles nothing anew.

Programs that the partitioner splits by itself are the exception: JAX puts an address into their key, for any
`custom_partitioning`. Under Keras's `DataParallel` the split is known beforehand and there is none.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

if os.environ["KERAS_BACKEND"] != "jax":
    pytest.skip("needs KERAS_BACKEND=jax", allow_module_level=True)

PROGRAM = """
import collections
import jax, jax.numpy as jnp, keras, numpy as np
from jax.sharding import NamedSharding, PartitionSpec
from keras_tunedconv.bridges import convolution
from keras_tunedconv.bridges.jax.targets import TARGET

x, w = np.ones((4, 8, 8, 4), np.float32), np.ones((3, 3, 4, 8), np.float32)
arguments = dict(strides=(1, 1), padding="same", data_format="channels_last", dilation_rate=(1, 1), groups=1)
step = jax.jit(jax.grad(lambda x, w: jnp.sum(convolution(x, w, **arguments)), (0, 1)))
distribution = keras.distribution.DataParallel()
keras.distribution.set_distribution(distribution)
x = jax.device_put(x, distribution.get_data_layout(x.shape).backend_layout)
w = jax.device_put(w, NamedSharding(distribution.device_mesh.backend_mesh, PartitionSpec()))

counts = collections.Counter()
jax.monitoring.register_event_listener(lambda event, **_: counts.update([event.rsplit("/", 1)[-1]]))
compiled = step.lower(x, w).compile()
assert TARGET in compiled.as_text()
jax.block_until_ready(compiled(x, w))
print("hits", counts["cache_hits"], "misses", counts["cache_misses"])
"""


@pytest.mark.slow
@pytest.mark.parametrize("devices", [1, 2])
def test_a_second_process_finds_the_program(devices, tmp_path):
    environment = os.environ | {
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
        "KERAS_TUNEDCONV_KEY_BUDGET": "0.02",
    }
    outputs = []
    for _ in range(2):
        run = subprocess.run(
            [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=False
        )
        assert run.returncode == 0, run.stderr
        outputs.append(run.stdout.strip())
    assert outputs == ["hits 0 misses 1", "hits 1 misses 0"]
