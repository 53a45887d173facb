"""Convolutions named by one line of text, and the built-in sets of such lines.

A problem is `N,Cin,HW,Cout,kernel,stride,groups`, then optional `name=value` fields:

    8,64,56,64,3,1,1
    8,3,230,64,7,2,1,padding=valid
    32,96,56x28,96,7,1,96,dtype=float16,count=3

`HW`, `kernel`, `stride` and `dilation` are one number for both axes, or `AxB`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from importlib import resources

from keras_tunedconv.core.descriptor import SUPPORTED_DTYPES, ConvDescriptor, Direction, forward_descriptor

_POSITIONS = ("N", "Cin", "HW", "Cout", "kernel", "stride", "groups")
_FORM = ",".join(_POSITIONS) + "[,dtype=...][,dilation=...][,padding=same|valid][,layout=...][,count=...]"
_CHOICES = {
    "dtype": tuple(sorted(SUPPORTED_DTYPES)),
    "padding": ("same", "valid"),
    "layout": ("channels_last", "channels_first"),
}
# Built-in sets that are not one model's.
_MIXED_SETS = ("baselines", "baselines_gpu", "uneven_gpu")


@dataclass(frozen=True)
class Problem:
    """One two-dimensional convolution.

    Args:
        batch: Number of images.
        channels: Input channels.
        size: Height and width of the input.
        filters: Output channels.
        kernel: Height and width of the kernel.
        stride: Stride of each axis.
        groups: Number of groups; `groups == channels` is a depthwise convolution.
        dilation: Dilation of each axis.
        padding: `"same"` or `"valid"`.
        dtype: Dtype of input, kernel and output.
        layout: `"channels_last"` or `"channels_first"`.
        count: How often the convolution occurs in the model the line was taken from.
    """

    batch: int
    channels: int
    size: tuple[int, int]
    filters: int
    kernel: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    groups: int = 1
    dilation: tuple[int, int] = (1, 1)
    padding: str = "same"
    dtype: str = "float32"
    layout: str = "channels_last"
    count: int = 1

    @property
    def x_shape(self) -> tuple[int, ...]:
        """Shape of the input tensor in its layout."""
        if self.layout == "channels_last":
            return (self.batch, *self.size, self.channels)
        return (self.batch, self.channels, *self.size)

    @property
    def kernel_shape(self) -> tuple[int, ...]:
        """Shape of the kernel as Keras has it, `(kh, kw, channels / groups, filters)`."""
        return (*self.kernel, self.channels // self.groups, self.filters)

    def descriptor(self, direction: Direction = "forward") -> ConvDescriptor:
        """The descriptor of one direction.

        Raises:
            ValueError: the convolution is impossible; the message names the shapes.
        """
        forward = forward_descriptor(
            self.x_shape,
            self.kernel_shape,
            self.dtype,
            strides=self.stride,
            padding=self.padding,
            data_format=self.layout,
            dilation_rate=self.dilation,
        )
        return forward.with_direction(direction)

    @property
    def text(self) -> str:
        """The line that `parse` reads back."""
        numbers = (self.batch, self.channels, _join(self.size), self.filters, _join(self.kernel))
        line = [str(n) for n in (*numbers, _join(self.stride), self.groups)]
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in _OPTIONS and value != field.default:
                line.append(f"{field.name}={_join(value) if isinstance(value, tuple) else value}")
        return ",".join(line)


_OPTIONS = ("dilation", "padding", "dtype", "layout", "count")


def _join(pair: tuple[int, int]) -> str:
    return str(pair[0]) if pair[0] == pair[1] else f"{pair[0]}x{pair[1]}"


def parse(line: str) -> Problem:
    """The problem a line of text names.

    Args:
        line: `N,Cin,HW,Cout,kernel,stride,groups` and optional `name=value` fields.

    Returns:
        A `Problem` whose convolution is possible.

    Raises:
        ValueError: the line has another form, or the convolution is impossible.
    """
    parts = [part.strip() for part in line.split(",")]
    positional = [part for part in parts if "=" not in part]
    if len(positional) != len(_POSITIONS) or any("=" in part for part in parts[: len(_POSITIONS)]):
        raise ValueError(f"A problem has the form {_FORM}. Received: {line!r}")
    n, c, hw, k, kernel, stride, groups = positional
    values = {
        "batch": _integer(n, "N", line),
        "channels": _integer(c, "Cin", line),
        "size": _pair(hw, "HW", line),
        "filters": _integer(k, "Cout", line),
        "kernel": _pair(kernel, "kernel", line),
        "stride": _pair(stride, "stride", line),
        "groups": _integer(groups, "groups", line),
    }
    options = (part.partition("=") for part in parts[len(_POSITIONS) :])
    problem = Problem(**values, **{name: _option(name, value, line) for name, _, value in options})  # type: ignore[arg-type]
    if problem.channels % problem.groups or problem.filters % problem.groups:
        raise ValueError(f"Cin and Cout must be divisible by groups. Received: {line!r}")
    problem.descriptor()
    return problem


def _option(name: str, value: str, line: str) -> object:
    if name in _CHOICES:
        if value not in _CHOICES[name]:
            raise ValueError(f"{name} must be one of {', '.join(_CHOICES[name])}. Received: {line!r}")
        return value
    if name == "dilation":
        return _pair(value, name, line)
    if name == "count":
        return _integer(value, name, line)
    raise ValueError(f"Unknown field {name!r}; known are {', '.join(_OPTIONS)}. Received: {line!r}")


def _integer(text: str, name: str, line: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise ValueError(f"{name} must be a positive integer. Received: {text!r} in {line!r}")
    return int(text)


def _pair(text: str, name: str, line: str) -> tuple[int, int]:
    first, _, second = text.partition("x")
    return _integer(first, name, line), _integer(second or first, name, line)


def set_names() -> list[str]:
    """Names of the built-in sets."""
    folder = resources.files(__package__) / "sets"
    return sorted(
        entry.name.removesuffix(".txt") for entry in folder.iterdir() if entry.name.endswith(".txt")
    )


def model_set_names() -> list[str]:
    """Names of the built-in sets that hold one model's convolutions and are named after it."""
    return [name for name in set_names() if name not in _MIXED_SETS]


def load_set(name: str) -> list[Problem]:
    """The problems of a built-in set, at the batch size they are written with.

    Raises:
        ValueError: there is no such set; the message lists those there are.
    """
    if name not in set_names():
        raise ValueError(f"No set named {name!r}; the built-in sets are {', '.join(set_names())}.")
    text = (resources.files(__package__) / "sets" / f"{name}.txt").read_text()
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return [parse(line) for line in lines if line]


def select(names: Iterable[str], *, batch: int | None = None, dtype: str | None = None) -> list[Problem]:
    """Problems from a mix of set names and problem lines.

    Args:
        names: Names of built-in sets, or lines that `parse` reads.
        batch: Batch size that replaces the written one.
        dtype: Dtype that replaces the written one.

    Returns:
        The problems in the order given.

    Raises:
        ValueError: a name is neither a set nor a problem.
    """
    found: list[Problem] = []
    for name in names:
        found += [parse(name)] if "," in name else load_set(name)
    return changed(found, batch=batch, dtype=dtype)


def changed(
    problems: Iterable[Problem], *, batch: int | None = None, dtype: str | None = None
) -> list[Problem]:
    """Problems at another batch size or dtype, where one is given."""
    changes = {key: value for key, value in (("batch", batch), ("dtype", dtype)) if value is not None}
    return [replace(problem, **changes) for problem in problems]  # type: ignore[arg-type]
