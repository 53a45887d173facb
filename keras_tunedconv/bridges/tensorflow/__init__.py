"""The bridge to TensorFlow: one op a direction, native and XLA kernels, compiled at first use."""

from __future__ import annotations

from keras_tunedconv.bridges.tensorflow.operations import convolution as convolution
