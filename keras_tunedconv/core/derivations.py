"""Convolutions that a framework made out of a layer's: larger ones under `vmap`, parts under sharding.

A layer knows what it was traced with; what then runs may be another convolution, whose entries belong to the
layer all the same. The compiled program must not say whose it is, so the bridges note what became of what.
"""

from __future__ import annotations

from dataclasses import replace

from keras_tunedconv.core.descriptor import ConvDescriptor

_sources: dict[ConvDescriptor, set[ConvDescriptor]] = {}


def note(source: ConvDescriptor, made: ConvDescriptor) -> None:
    """Remember that one convolution was made out of another.

    Args:
        source: What was asked for, in any direction.
        made: What runs in its place.
    """
    source, made = _plain(source), _plain(made)
    if made != source:
        _sources.setdefault(made, set()).add(source)


def sources(descriptor: ConvDescriptor) -> list[ConvDescriptor]:
    """All convolutions that one may have been made out of, itself first, in the forward direction."""
    found = {_plain(descriptor): None}
    waiting = list(found)
    while waiting:
        for source in tuple(_sources.get(waiting.pop(), ())):
            if source not in found:
                found[source] = None
                waiting.append(source)
    return list(found)


def _plain(descriptor: ConvDescriptor) -> ConvDescriptor:
    """Without what directions and devices differ in."""
    return replace(descriptor, direction="forward", w_layout="hwio", allow_tf32=False, deterministic=False)
