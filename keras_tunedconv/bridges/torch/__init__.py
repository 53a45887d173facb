"""The torch backend's bridge."""

from __future__ import annotations

from keras_tunedconv.bridges.torch.convolution import convolution as convolution
