"""Descriptors: the contents that identify one convolution, and the text made of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

from keras_tunedconv.core.errors import check
from keras_tunedconv.core.library import ffi, lib, text

Direction = Literal["forward", "backward_data", "backward_filter"]
DIRECTIONS: tuple[Direction, ...] = ("forward", "backward_data", "backward_filter")

# Positions are the enumerators of tunedconv.h.
_DTYPES = ("float16", "bfloat16", "float32", "float64")
_LAYOUTS = ("channels_last", "channels_first")
_FILTER_LAYOUTS = ("hwio", "oihw", "ohwi")
SUPPORTED_DTYPES = frozenset(_DTYPES)

_DTYPE_FIELDS = ("x_dtype", "w_dtype", "y_dtype", "compute_dtype")
_DIM_FIELDS = ("x_dims", "w_dims", "y_dims", "pad_before", "pad_after", "stride", "dilation")


@dataclass(frozen=True)
class ConvDescriptor:
    """Everything that decides what a convolution computes and which algorithms can compute it.

    Dims are in logical order whatever the layout in memory: `(N, C, *spatial)` for x and y,
    `(O, C / groups, *spatial)` for the filter. x, w and y are those of the forward operation in every
    direction; `backward_data` computes the gradient of x, `backward_filter` that of w.

    Args:
        direction: `"forward"`, `"backward_data"` or `"backward_filter"`.
        x_dims: Dims of the input.
        w_dims: Dims of the filter.
        y_dims: Dims of the output.
        pad_before: Padding before each spatial axis, in elements.
        pad_after: Padding after each spatial axis.
        stride: Stride of each spatial axis.
        dilation: Dilation of each spatial axis.
        groups: Number of groups.
        x_dtype: `"float16"`, `"bfloat16"`, `"float32"` or `"float64"`; likewise for w and y.
        compute_dtype: Dtype of the accumulation.
        x_layout: `"channels_last"` or `"channels_first"`; likewise for y.
        w_layout: `"hwio"` (Keras), `"oihw"` (torch) or `"ohwi"`.
        allow_tf32: Whether float32 products may be rounded to TF32.
        deterministic: Whether only deterministic algorithms may run.
    """

    direction: Direction
    x_dims: tuple[int, ...]
    w_dims: tuple[int, ...]
    y_dims: tuple[int, ...]
    pad_before: tuple[int, ...]
    pad_after: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int = 1
    x_dtype: str = "float32"
    w_dtype: str = "float32"
    y_dtype: str = "float32"
    compute_dtype: str = "float32"
    x_layout: str = "channels_last"
    w_layout: str = "hwio"
    y_layout: str = "channels_last"
    allow_tf32: bool = False
    deterministic: bool = False

    @property
    def spatial_rank(self) -> int:
        """Number of spatial axes, 1 to 3."""
        return len(self.stride)

    @property
    def key(self) -> str:
        """The canonical text, one line.

        Raises:
            InvalidArgumentError: the fields contradict each other; the message names the one at fault.
        """
        # functools.cached_property has a lock in Python 3.11, which a forked child may find held for ever.
        known: str | None = self.__dict__.get("_key")
        if known is None:
            buffer = ffi.new("char[]", lib.TC_KEY_SIZE)
            check(lib.tc_key_format(self.to_c(), buffer, lib.TC_KEY_SIZE))
            known = self.__dict__["_key"] = text(buffer)
        return known

    @classmethod
    def from_key(cls, key: str) -> ConvDescriptor:
        """The descriptor a canonical text stands for.

        Raises:
            InvalidArgumentError: the text is not one that `key` gives.
        """
        c = ffi.new("tc_conv *")
        check(lib.tc_key_parse(key.encode(), c))
        return cls.from_c(c)

    def with_direction(self, direction: Direction) -> ConvDescriptor:
        """The same convolution in another direction."""
        return replace(self, direction=direction)

    def to_c(self) -> Any:
        """A new `tc_conv *`."""
        c = ffi.new("tc_conv *")
        c.direction = DIRECTIONS.index(self.direction)
        c.spatial_rank = self.spatial_rank
        for name in _DTYPE_FIELDS:
            setattr(c, name, _DTYPES.index(getattr(self, name)))
        c.x_layout = _LAYOUTS.index(self.x_layout)
        c.w_layout = _FILTER_LAYOUTS.index(self.w_layout)
        c.y_layout = _LAYOUTS.index(self.y_layout)
        c.allow_tf32 = self.allow_tf32
        c.deterministic = self.deterministic
        c.groups = self.groups
        for name in _DIM_FIELDS:
            field = getattr(c, name)
            for i, value in enumerate(getattr(self, name)):
                field[i] = value
        return c

    @classmethod
    def from_c(cls, c: Any) -> ConvDescriptor:
        """The descriptor in a `tc_conv`."""
        rank = c.spatial_rank
        lengths = {name: rank + 2 if name.endswith("dims") else rank for name in _DIM_FIELDS}
        fields: dict[str, Any] = {
            name: tuple(getattr(c, name)[i] for i in range(n)) for name, n in lengths.items()
        }
        fields |= {name: _DTYPES[getattr(c, name)] for name in _DTYPE_FIELDS}
        return cls(
            direction=DIRECTIONS[c.direction],
            **fields,
            groups=c.groups,
            x_layout=_LAYOUTS[c.x_layout],
            w_layout=_FILTER_LAYOUTS[c.w_layout],
            y_layout=_LAYOUTS[c.y_layout],
            allow_tf32=bool(c.allow_tf32),
            deterministic=bool(c.deterministic),
        )


def same_padding(size: int, kernel: int, stride: int, dilation: int) -> tuple[int, int]:
    """Padding before and after one axis under `padding="same"`.

    The output has `ceil(size / stride)` elements; what does not divide evenly goes after, as
    TensorFlow documents for `SAME` (https://www.tensorflow.org/api_docs/python/tf/nn#notes_on_padding_2).
    """
    output = -(-size // stride)
    total = max((output - 1) * stride + (kernel - 1) * dilation + 1 - size, 0)
    return total // 2, total - total // 2


def _per_axis(value: int | Sequence[int], rank: int) -> tuple[int, ...]:
    return (int(value),) * rank if isinstance(value, int) else tuple(int(v) for v in value)


def forward_descriptor(
    x_shape: Sequence[int],
    kernel_shape: Sequence[int],
    dtype: str = "float32",
    *,
    strides: int | Sequence[int] = 1,
    padding: str | Sequence[tuple[int, int]] = "valid",
    data_format: str = "channels_last",
    dilation_rate: int | Sequence[int] = 1,
    deterministic: bool = False,
    allow_tf32: bool = False,
) -> ConvDescriptor:
    """The forward descriptor of a Keras convolution.

    Args:
        x_shape: Shape of the input as the tensor has it, `(N, *spatial, C)` for `channels_last`.
        kernel_shape: Shape of the kernel, `(*spatial, C / groups, O)`.
        dtype: Dtype of input, kernel and output.
        strides: Stride, or one for each spatial axis.
        padding: `"valid"`, `"same"`, or `(before, after)` for each spatial axis.
        data_format: `"channels_last"` or `"channels_first"`.
        dilation_rate: Dilation, or one for each spatial axis.
        deterministic: Whether only deterministic algorithms may run.
        allow_tf32: Whether float32 products may be rounded to TF32.

    Returns:
        A `ConvDescriptor`; the number of groups follows from the channels.

    Raises:
        ValueError: ranks differ, channels do not divide into groups, or the output would be empty.
    """
    rank = len(kernel_shape) - 2
    if rank not in (1, 2, 3) or len(x_shape) != rank + 2:
        raise ValueError(
            "Expected an input and a kernel of equal rank with 1 to 3 spatial axes. "
            f"Received: input shape {tuple(x_shape)}, kernel shape {tuple(kernel_shape)}."
        )
    if data_format == "channels_last":
        batch, *spatial, channels = (int(d) for d in x_shape)
    else:
        batch, channels, *spatial = (int(d) for d in x_shape)
    *kernel, in_per_group, filters = (int(d) for d in kernel_shape)
    if in_per_group == 0 or channels % in_per_group or filters % max(channels // in_per_group, 1):
        raise ValueError(
            "Expected input channels divisible by the kernel's input channels, and filters by the number of "
            f"groups. Received: input shape {tuple(x_shape)}, kernel shape {tuple(kernel_shape)}."
        )
    stride, dilation = _per_axis(strides, rank), _per_axis(dilation_rate, rank)
    if isinstance(padding, str):
        same = padding.lower() == "same"
        pads = [
            same_padding(spatial[i], kernel[i], stride[i], dilation[i]) if same else (0, 0)
            for i in range(rank)
        ]
    else:
        pads = [(int(before), int(after)) for before, after in padding]
    output = [
        (spatial[i] + sum(pads[i]) - (kernel[i] - 1) * dilation[i] - 1) // stride[i] + 1 for i in range(rank)
    ]
    if min(output) <= 0 and 0 not in spatial:
        raise ValueError(
            "The convolution would have an empty output: the dilated kernel must fit into the padded input. "
            f"Received: input shape {tuple(x_shape)}, kernel shape {tuple(kernel_shape)}, padding={padding}."
        )
    return ConvDescriptor(
        direction="forward",
        x_dims=(batch, channels, *spatial),
        w_dims=(filters, in_per_group, *kernel),
        y_dims=(batch, filters, *output),
        pad_before=tuple(before for before, _ in pads),
        pad_after=tuple(after for _, after in pads),
        stride=stride,
        dilation=dilation,
        groups=channels // in_per_group,
        x_dtype=dtype,
        w_dtype=dtype,
        y_dtype=dtype,
        compute_dtype="float64" if dtype == "float64" else "float32",
        x_layout=data_format,
        y_layout=data_format,
        deterministic=deterministic,
        allow_tf32=allow_tf32,
    )


@dataclass(frozen=True)
class ConvPattern:
    """What a layer was traced with, to find its entries among all those of a process.

    The batch is not part of it: a framework may split or fold it (sharding, `vmap`), and entries of other
    batch sizes of the same convolution are worth keeping with it. Nor is the layout, which a framework may
    choose by how a tensor lies in memory.

    Args:
        channels: Input channels.
        spatial: Size of each spatial axis; `None` where it was unknown.
        w_dims: Dims of the filter, `(O, C / groups, *spatial)`.
        stride: Stride of each spatial axis.
        dilation: Dilation of each spatial axis.
        padding: `"same"` or `"valid"`.
        dtype: Dtype of input, filter and output.
    """

    channels: int
    spatial: tuple[int | None, ...]
    w_dims: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    padding: str
    dtype: str

    @classmethod
    def from_shapes(
        cls,
        x_shape: Sequence[int | None],
        kernel_shape: Sequence[int],
        dtype: str,
        *,
        strides: Sequence[int],
        padding: str,
        data_format: str,
        dilation_rate: Sequence[int],
    ) -> ConvPattern:
        """The pattern of a Keras convolution; shapes as in `forward_descriptor`, `None` where unknown."""
        *kernel, in_per_group, filters = kernel_shape
        spatial = x_shape[1:-1] if data_format == "channels_last" else x_shape[2:]
        channels = x_shape[-1] if data_format == "channels_last" else x_shape[1]
        return cls(
            channels=cast(int, channels),
            spatial=tuple(spatial),
            w_dims=(filters, in_per_group, *kernel),
            stride=tuple(strides),
            dilation=tuple(dilation_rate),
            padding=padding,
            dtype=dtype,
        )

    @property
    def family(self) -> tuple[Any, ...]:
        """What a descriptor must equal exactly; the rest is checked by `matches`."""
        return self.channels, self.w_dims, self.stride, self.dilation, self.dtype

    def matches(self, descriptor: ConvDescriptor) -> bool:
        """Whether an entry with this descriptor can have come from this layer."""
        d = descriptor
        if self.family != (d.x_dims[1], d.w_dims, d.stride, d.dilation, d.x_dtype):
            return False
        for i, expected in enumerate(self.spatial):
            size = d.x_dims[2 + i]
            if expected is not None and size != expected:
                return False
            if (d.pad_before[i], d.pad_after[i]) != self._pads(i, size):
                return False
        return True

    def to_c(self, direction: str) -> Any:
        """A new `tc_conv *` that `tc_set_pattern_override` takes: 0 where a size is unknown."""
        c = ffi.new("tc_conv *")
        c.direction = DIRECTIONS.index(cast(Direction, direction))
        c.spatial_rank = len(self.spatial)
        c.x_dtype = _DTYPES.index(self.dtype)
        c.groups = self.channels // self.w_dims[1]
        for i, dim in enumerate(self.w_dims):
            c.w_dims[i] = dim
        for i, size in enumerate(self.spatial):
            c.stride[i], c.dilation[i] = self.stride[i], self.dilation[i]
            if size is not None:
                c.x_dims[2 + i] = size
                c.pad_before[i], c.pad_after[i] = self._pads(i, size)
        return c

    def _pads(self, axis: int, size: int) -> tuple[int, int]:
        if self.padding != "same":
            return 0, 0
        return same_padding(size, self.w_dims[2 + axis], self.stride[axis], self.dilation[axis])
