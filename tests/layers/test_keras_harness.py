"""Keras's own harness for layers; the one file that imports what Keras does not publish for tests."""

import unittest

import keras
import pytest

testing = pytest.importorskip("keras.src.testing", exc_type=ImportError)

from keras_tunedconv.layers.tuned_conv2d import TunedConv2D  # noqa: E402

BACKEND = keras.backend.backend()

# The first three are those that Keras tests its Conv2D with.
CASES = {
    "valid": ({"filters": 5, "kernel_size": 2}, (3, 5, 5, 4), (3, 4, 4, 5)),
    "same, dilated, grouped": (
        {"filters": 6, "kernel_size": 2, "padding": "same", "dilation_rate": (2, 2), "groups": 2},
        (3, 4, 4, 4),
        (3, 4, 4, 6),
    ),
    "strided, grouped": (
        {"filters": 6, "kernel_size": (2, 2), "strides": (2, 1), "groups": 2},
        (3, 5, 5, 4),
        (3, 2, 4, 6),
    ),
    "same, strided, odd": (
        {"filters": 3, "kernel_size": (3, 4), "padding": "same", "strides": (3, 2)},
        (2, 7, 8, 4),
        (2, 3, 4, 3),
    ),
    "depthwise": ({"filters": 8, "kernel_size": 3, "groups": 4}, (2, 6, 6, 4), (2, 4, 4, 8)),
    "channels first": (
        {"filters": 5, "kernel_size": 2, "data_format": "channels_first"},
        (3, 4, 5, 5),
        (3, 5, 4, 4),
    ),
}


class TunedConv2DTest(testing.TestCase):
    pass


def run(case, **expected):
    arguments, input_shape, output_shape = CASES[case]
    test = TunedConv2DTest()
    test.setUp()
    try:
        test.run_layer_test(
            TunedConv2D,
            init_kwargs={**arguments, **expected.pop("arguments", {})},
            input_shape=input_shape,
            expected_output_shape=output_shape,
            **{
                "expected_num_trainable_weights": 2,
                "expected_num_non_trainable_weights": 0,
                "expected_num_losses": 0,
                "supports_masking": False,
                **expected,
            },
        )
    finally:
        test.tearDown()
        test.doCleanups()


@pytest.mark.parametrize("case", CASES)
def test_layer(case):
    first = CASES[case][0].get("data_format") == "channels_first"
    if first and BACKEND == "tensorflow":
        run(case, run_training_check=False)  # TensorFlow's CPU kernels cannot compile its bias
    else:
        run(case)


def test_layer_without_bias_and_with_losses():
    run(
        "valid",
        arguments={
            "use_bias": False,
            "kernel_regularizer": "l2",
            "activity_regularizer": "l2",
            "activation": "relu",
        },
        expected_num_trainable_weights=1,
        expected_num_losses=2,
    )


def test_the_harness_can_fail():
    with pytest.raises((AssertionError, unittest.TestCase.failureException)):
        run("valid", expected_num_trainable_weights=3)
