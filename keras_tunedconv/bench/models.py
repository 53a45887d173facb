"""The whole models of the benchmark, with random weights, and the convolutions inside a model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import keras
from keras import layers

from keras_tunedconv.bench.problem import Problem

CLASSES = 1000


def resnet50(size: int) -> keras.Model:
    """ResNet50 of keras.applications."""
    return keras.applications.ResNet50(weights=None, input_shape=(size, size, 3), classes=CLASSES)


def mobilenet_v3(size: int) -> keras.Model:
    """MobileNetV3Large of keras.applications."""
    return keras.applications.MobileNetV3Large(weights=None, input_shape=(size, size, 3), classes=CLASSES)


def convnext_tiny(size: int) -> keras.Model:
    """ConvNeXtTiny of keras.applications."""
    return keras.applications.ConvNeXtTiny(weights=None, input_shape=(size, size, 3), classes=CLASSES)


def efficientnet_b0(size: int) -> keras.Model:
    """EfficientNetB0 of keras.applications."""
    return keras.applications.EfficientNetB0(weights=None, input_shape=(size, size, 3), classes=CLASSES)


def _conv_bn(
    x: Any, filters: int, kernel: int, *, strides: int = 1, groups: int = 1, relu: bool = True
) -> Any:
    x = layers.Conv2D(filters, kernel, strides=strides, padding="same", groups=groups, use_bias=False)(x)
    x = layers.BatchNormalization()(x)
    return layers.ReLU()(x) if relu else x


def _resnext_block(x: Any, filters: int, strides: int, groups: int) -> Any:
    shortcut = x
    if strides != 1 or x.shape[-1] != 2 * filters:
        shortcut = _conv_bn(x, 2 * filters, 1, strides=strides, relu=False)
    x = _conv_bn(x, filters, 1)
    x = _conv_bn(x, filters, 3, strides=strides, groups=groups)
    x = _conv_bn(x, 2 * filters, 1, relu=False)
    return layers.ReLU()(layers.Add()([x, shortcut]))


def resnext50(size: int) -> keras.Model:
    """ResNeXt50-32x4d (Xie et al., "Aggregated Residual Transformations for Deep Neural Networks")."""
    inputs = keras.Input((size, size, 3))
    x = _conv_bn(inputs, 64, 7, strides=2)
    x = layers.MaxPooling2D(3, strides=2, padding="same")(x)
    for stage, blocks in enumerate((3, 4, 6, 3)):
        for block in range(blocks):
            strides = 2 if stage > 0 and block == 0 else 1
            x = _resnext_block(x, 128 * 2**stage, strides, groups=32)
    x = layers.GlobalAveragePooling2D()(x)
    outputs = layers.Dense(CLASSES, activation="softmax")(x)
    return keras.Model(inputs, outputs, name="resnext50_32x4d")


def _double_conv(x: Any, filters: int) -> Any:
    return _conv_bn(_conv_bn(x, filters, 3), filters, 3)


def unet(size: int) -> keras.Model:
    """U-Net (Ronneberger et al.) with same padding, 32 filters at full resolution, one score a pixel.

    Upsampling is nearest-neighbour and a 2x2 convolution, so that every convolution is a Conv2D.
    """
    x = inputs = keras.Input((size, size, 3))
    skips = []
    for level in range(4):
        x = _double_conv(x, 32 * 2**level)
        skips.append(x)
        x = layers.MaxPooling2D(2)(x)
    x = _double_conv(x, 32 * 2**4)
    for level in reversed(range(4)):
        x = _conv_bn(layers.UpSampling2D(2)(x), 32 * 2**level, 2)
        x = _double_conv(layers.Concatenate()([skips[level], x]), 32 * 2**level)
    outputs = layers.Conv2D(1, 1, activation="sigmoid")(x)
    return keras.Model(inputs, outputs, name="unet")


MODELS: dict[str, Callable[[int], keras.Model]] = {
    "resnet50": resnet50,
    "resnext50": resnext50,
    "mobilenet_v3": mobilenet_v3,
    "convnext_tiny": convnext_tiny,
    "efficientnet_b0": efficientnet_b0,
    "unet": unet,
}


def build(name: str, size: int = 224) -> keras.Model:
    """A model by name, uncompiled.

    Args:
        name: One of `MODELS`.
        size: Height and width of its images.

    Raises:
        ValueError: there is no such model; the message lists those there are.
    """
    if name not in MODELS:
        raise ValueError(f"No model named {name!r}; there are {', '.join(MODELS)}.")
    return MODELS[name](size)


def convolutions(model: keras.Model, batch: int) -> list[Problem]:
    """The distinct two-dimensional convolutions of a built model, in the order they first occur.

    Args:
        model: A Functional or Sequential model; models nested in it are looked into.
        batch: Batch size of the problems.

    Returns:
        Problems with `count` set.
    """
    counts: Counter[Problem] = Counter()
    for layer in _flat_layers(model):
        if isinstance(layer, (layers.Conv2D, layers.DepthwiseConv2D)):
            counts[_problem(layer, batch)] += 1
    return [replace(problem, count=count) for problem, count in counts.items()]


def _flat_layers(model: keras.Model) -> list[Any]:
    found: list[Any] = []
    for layer in model.layers:
        found += _flat_layers(layer) if isinstance(layer, keras.Model | keras.Sequential) else [layer]
    return found


def _problem(layer: Any, batch: int) -> Problem:
    channels_last = layer.data_format == "channels_last"
    shape = layer.input.shape
    channels = int(shape[-1] if channels_last else shape[1])
    height, width = shape[1:3] if channels_last else shape[2:4]
    depthwise = isinstance(layer, layers.DepthwiseConv2D)
    filters = channels * layer.depth_multiplier if depthwise else layer.filters
    return Problem(
        batch=batch,
        channels=channels,
        size=(int(height), int(width)),
        filters=int(filters),
        kernel=tuple(layer.kernel_size),
        stride=tuple(layer.strides),
        groups=channels if depthwise else layer.groups,
        dilation=tuple(layer.dilation_rate),
        padding=layer.padding,
        dtype=layer.compute_dtype,
        layout=layer.data_format,
    )
