"""Shapes of the arrays a descriptor speaks of, and which array each direction reads and writes."""

from __future__ import annotations

from keras_tunedconv.core.descriptor import ConvDescriptor, Direction

# The letters of tunedconv.h: x input, w filter, y output. Operands in the order of the custom call, then the
# result; the three directions are each other's transposes, so any two of the arrays give the third.
ROLES: dict[Direction, tuple[str, str, str]] = {
    "forward": ("x", "w", "y"),
    "backward_data": ("w", "y", "x"),
    "backward_filter": ("x", "y", "w"),
}
DIRECTION_OF_RESULT: dict[str, Direction] = {roles[2]: direction for direction, roles in ROLES.items()}


def shape_of(descriptor: ConvDescriptor, role: str) -> tuple[int, ...]:
    """Shape of an array as it lies in memory.

    Args:
        descriptor: The convolution.
        role: `"x"`, `"w"` or `"y"`.

    Returns:
        `(N, *spatial, C)` or `(N, C, *spatial)` for x and y; `(*spatial, C / groups, O)` for w in Keras's
        order, `(O, *spatial, C / groups)` in cuDNN's.
    """
    first, channels, *spatial = getattr(descriptor, role + "_dims")
    if role == "w":
        return (first, *spatial, channels) if descriptor.w_layout == "ohwi" else (*spatial, channels, first)
    if descriptor.x_layout == "channels_last":
        return (first, *spatial, channels)
    return (first, channels, *spatial)


def channel_axis(descriptor: ConvDescriptor) -> int:
    """The axis of x and y that counts channels."""
    return descriptor.spatial_rank + 1 if descriptor.x_layout == "channels_last" else 1
