"""The 2D convolution layer."""

from __future__ import annotations

import inspect
from typing import Any

import keras

from keras_tunedconv.bridges import convolution, prepare
from keras_tunedconv.core.descriptor import SUPPORTED_DTYPES
from keras_tunedconv.layers.algorithms import Algorithm, Requests, standardize
from keras_tunedconv.layers.tracing import needs_stock
from keras_tunedconv.tuning.cache import TuningCache


@keras.saving.register_keras_serializable(package="keras_tunedconv", name="TunedConv2D")
class TunedConv2D(keras.layers.Conv2D):  # type: ignore[misc, unused-ignore]
    """2D convolution layer that runs the fastest algorithm measured on the device.

    It takes the arguments of `keras.layers.Conv2D` and `algorithm`, has the same weights under the same
    names and gives the same results; only the algorithm that computes the convolution and its gradients
    differs. The first time a convolution runs on a device, the algorithms that can do it are timed on its
    real data and the best is kept. The choices are saved with the layer's weights, so whoever loads the
    model on the same kind of device measures nothing. Weights files of stock and tuned models are
    interchangeable.

    A call that no tuned engine can serve runs Keras's own convolution, and one
    `keras_tunedconv.TuningWarning` says why.

    Args:
        filters: Number of output channels.
        kernel_size: Size of the window, an int or two.
        strides: Stride, an int or two.
        padding: `"valid"` or `"same"`.
        data_format: `"channels_last"` or `"channels_first"`; unset, that of the Keras configuration.
        dilation_rate: Dilation, an int or two.
        groups: Number of groups that the channels are split into.
        activation: Activation function, or `None`.
        use_bias: Whether a bias is added.
        kernel_initializer: Initializer of the kernel; likewise `bias_initializer`.
        kernel_regularizer: Regularizer of the kernel; likewise `bias_regularizer` and
            `activity_regularizer`, the last of the output.
        kernel_constraint: Constraint on the kernel; likewise `bias_constraint`.
        algorithm: Name of an algorithm that this layer runs whatever is stored, or a dict from some of
            `"forward"`, `"backward_data"` and `"backward_filter"` to names; `None` for the fastest. Names are
            those that `tuning` and `keras-tunedconv inspect` show. It holds for every batch size, and is
            saved with the model's configuration, not with weights alone. One that cannot run is an error of
            the backend whose message lists what can.
        **kwargs: Further arguments of `keras.layers.Conv2D` and `keras.layers.Layer`, such as
            `lora_rank`, `dtype`, `name`.

    Attributes:
        tuning: A `TuningCache` with the layer's entries.
        algorithm: The argument; it may be changed, also for steps that are compiled already.

    Input shape:
        `(N, height, width, channels)` for `channels_last`, `(N, channels, height, width)` for
        `channels_first`; float16, bfloat16, float32 or float64.

    Output shape:
        `(N, new_height, new_width, filters)` or `(N, filters, new_height, new_width)`.

    Raises:
        ValueError: wherever `keras.layers.Conv2D` raises it, before anything is measured; or `algorithm` is
            no such thing, or another layer has the same convolution and another `algorithm`.

    Example:

    ```python
    import keras
    from keras_tunedconv import TunedConv2D, TuningCallback

    model = keras.Sequential(
        [keras.Input((28, 28, 1)), TunedConv2D(32, 3, activation="relu"), keras.layers.Flatten()]
    )
    model.compile("adam", "mse")
    model.fit(x, y, callbacks=[TuningCallback()])
    model.save("model.keras")  # carries the tuning
    ```
    """

    def __init__(self, *args: Any, algorithm: Algorithm = None, **kwargs: Any) -> None:
        algorithms = standardize(algorithm)
        super().__init__(*args, **kwargs)
        self.tuning = TuningCache(owner=self.name)
        self._requests = Requests(self.name, algorithms)

    @property
    def algorithm(self) -> str | dict[str, str] | None:
        """What the layer runs whatever is stored: a name, names of directions, or `None`."""
        return self._requests.argument

    @algorithm.setter
    def algorithm(self, algorithm: Algorithm) -> None:
        self._requests.change(standardize(algorithm), self.tuning.calls())

    def build(self, input_shape: Any) -> None:
        """Make the weights for inputs of a shape."""
        prepare()
        super().build(input_shape)

    def convolution_op(self, inputs: Any, kernel: Any) -> Any:
        """Convolve, without bias and activation.

        Args:
            inputs: Tensor in the layer's data format.
            kernel: Tensor or variable, `(height, width, channels / groups, filters)`.

        Returns:
            A tensor in the layer's data format.
        """
        outputs = None if needs_stock(inputs) else self._tuned_convolution(inputs, kernel)
        return super().convolution_op(inputs, kernel) if outputs is None else outputs

    def load_own_variables(self, store: Any) -> None:
        """Load the weights from a store of Keras's; the entries are loaded by `tuning`."""
        self.tuning.guard(store)
        super().load_own_variables(store)

    def get_config(self) -> dict[str, Any]:
        """The arguments; `algorithm` only where it is set, so that others stay those of `Conv2D`."""
        config: dict[str, Any] = super().get_config()
        algorithm = self.algorithm
        return config if algorithm is None else {**config, "algorithm": algorithm}

    def __repr__(self) -> str:
        return f"<{type(self).__qualname__} name={self.name}, built={self.built}>"

    def _tuned_convolution(self, inputs: Any, kernel: Any) -> Any:
        kernel = keras.ops.convert_to_tensor(kernel)
        dtype = keras.backend.standardize_dtype(kernel.dtype)
        if dtype not in SUPPORTED_DTYPES:
            return None
        arguments: dict[str, Any] = {
            "strides": self.strides,
            "padding": self.padding,
            "data_format": self.data_format,
            "dilation_rate": self.dilation_rate,
        }
        shapes = {"x_shape": inputs.shape, "kernel_shape": kernel.shape, "dtype": dtype}
        if self._requests.algorithms:
            self._requests.announce(**shapes, **arguments)
        outputs = convolution(inputs, kernel, groups=self.groups, **arguments)
        if outputs is not None:
            computed = keras.backend.standardize_dtype(outputs.dtype)  # torch's autocast may choose another
            self.tuning.note(**{**shapes, "dtype": computed}, **arguments)
            if self._requests.algorithms and computed != dtype:
                self._requests.announce(**{**shapes, "dtype": computed}, **arguments)
        return outputs


def _signature() -> inspect.Signature:
    stock = inspect.signature(keras.layers.Conv2D.__init__)
    *first, last = stock.parameters.values()
    own = inspect.Parameter("algorithm", inspect.Parameter.KEYWORD_ONLY, default=None)
    return stock.replace(parameters=[*first, own, last])


# Keras builds the paths of a weights file, and a layer's own name, from the name of its class: with this
# one, files of stock and tuned models are interchangeable and a script keeps its layers' names.
# Pickling finds the class by __qualname__, a saved model by the name it is registered under.
TunedConv2D.__name__ = "Conv2D"
# Whatever arguments this version of Keras takes are passed on; this shows them by name.
TunedConv2D.__init__.__signature__ = _signature()  # type: ignore[attr-defined]
