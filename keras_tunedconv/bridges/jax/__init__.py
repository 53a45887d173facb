"""The JAX backend's bridge."""

from __future__ import annotations

from keras_tunedconv.bridges.jax.convolution import convolution as convolution
