"""Margins of a split spatial axis: fetched from the neighbours, or given back to them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

Axes = tuple[str, ...]


def with_margins(array: Any, axis: int, names: Axes, parts: int, before: int, after: int) -> Any:
    """Extend a device's part of an array by what lies beyond it on the neighbours.

    Args:
        array: This device's part, at least as long as each margin.
        axis: The split axis.
        names: The mesh axes that split it.
        parts: How many parts there are.
        before: Elements to fetch of the previous part.
        after: Elements to fetch of the next part; negative to leave out as many at the end.

    Returns:
        The extended part. Beyond the ends of the whole array the margins are zero, as padding is.
    """
    length = array.shape[axis]
    pieces = [array]
    if before > 0:
        end = jax.lax.slice_in_dim(array, length - before, length, axis=axis)
        pieces.insert(0, jax.lax.ppermute(end, names, [(i, i + 1) for i in range(parts - 1)]))
    if after > 0:
        start = jax.lax.slice_in_dim(array, 0, after, axis=axis)
        pieces.append(jax.lax.ppermute(start, names, [(i + 1, i) for i in range(parts - 1)]))
    whole = jnp.concatenate(pieces, axis) if len(pieces) > 1 else array
    return jax.lax.slice_in_dim(whole, 0, length + before + after, axis=axis)


def without_margins(array: Any, axis: int, names: Axes, parts: int, before: int, after: int) -> Any:
    """The transpose of `with_margins`: send margins to their owners, which add them to their part."""
    length = array.shape[axis] - before - after
    own = jax.lax.slice_in_dim(array, before, min(before + length, array.shape[axis]), axis=axis)
    own = _pad(own, axis, 0, max(-after, 0))
    if before > 0:
        margin = jax.lax.slice_in_dim(array, 0, before, axis=axis)
        margin = jax.lax.ppermute(margin, names, [(i + 1, i) for i in range(parts - 1)])
        own = own + _pad(margin, axis, length - before, 0)
    if after > 0:
        margin = jax.lax.slice_in_dim(array, before + length, array.shape[axis], axis=axis)
        margin = jax.lax.ppermute(margin, names, [(i, i + 1) for i in range(parts - 1)])
        own = own + _pad(margin, axis, 0, length - after)
    return own


def _pad(array: Any, axis: int, before: int, after: int) -> Any:
    widths = [(0, 0)] * array.ndim
    widths[axis] = before, after
    return jnp.pad(array, widths)
