"""Adding entries to the files that Keras writes, without Keras.

Only groups with entries are written. The file is copied, the copy changed, and put in the original's place,
so that whoever reads sees the one or the other, and what is stored of the weights stays byte for byte.
"""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import h5py

from keras_tunedconv.core.descriptor import ConvDescriptor
from keras_tunedconv.core.record import Provenance, Record
from keras_tunedconv.tuning import hdf5, layer_configs, replacing
from keras_tunedconv.tuning.archive import (
    WEIGHTS,
    ArchiveError,
    is_database,
    layer_name,
    walk,
    weights_member,
)
from keras_tunedconv.tuning.layer_configs import LayerConfig
from keras_tunedconv.tuning.merge import identity, merge_into
from keras_tunedconv.tuning.schema import SchemaError, decode, encode

_KERNEL_RANK = 4

# Whether a convolution can be that of a layer with this name and kernel.
_Owns = Callable[[str, tuple[int, ...], ConvDescriptor], bool]


@dataclass(frozen=True)
class Added:
    """What was added to a model's file.

    Args:
        entries: How many entries are new or won over what was there.
        layers: How many layers have some of them.
    """

    entries: int
    layers: int


def add_entries(path: Path, records: Sequence[Record]) -> Added:
    """Add entries to the layers of a `.keras` or `.weights.h5` file whose convolutions they are.

    In a `.keras` file the arguments of each layer tell; a `.weights.h5` file and that of a subclassed model
    have no more than the shape of the kernel. What was measured is marked as imported; what wins against an
    entry that is there is decided by `merge.prefer`. The file is left alone when nothing changes.

    Args:
        path: The file.
        records: The entries, of any environments.

    Returns:
        How much was added.

    Raises:
        ArchiveError: the file is neither, has no tuned layer, or cannot be read or written.
    """
    try:
        with path.open("rb") as opened:
            start = opened.read(8)
        if start.startswith(b"PK"):
            return _into_archive(path, records)
        if start.lstrip().startswith(b"{"):
            raise ArchiveError("it is an index of shards; expected a .keras or .weights.h5 file.")
        file = path.resolve()
        with replacing.workplace(file) as folder:
            copy = folder / file.name
            shutil.copyfile(file, copy)
            added = _into_weights(copy, records, _owns_kernel)
            if added.entries:
                replacing.put_in_place(copy, file)
        return added
    except Exception as error:  # a damaged file raises whatever HDF5 came upon
        raise ArchiveError(f"Entries cannot be added to {path}: {error}") from error


def _into_archive(path: Path, records: Sequence[Record]) -> Added:
    file = path.resolve()
    with zipfile.ZipFile(file) as archive, replacing.workplace(file) as folder:
        copy, weights = folder / file.name, folder / f"{file.name}.weights"
        member = weights_member(archive)
        layers, tells_layers = layer_configs.read(archive.read("config.json"))
        if tells_layers and not layers:
            raise ArchiveError(
                "it has no TunedConv2D layer; keras_tunedconv.to_tuned(model) makes a model that has."
            )
        with archive.open(member) as source, weights.open("wb") as target:
            shutil.copyfileobj(source, target)
        added = _into_weights(weights, records, _owner(layers) if layers else _owns_kernel)
        if added.entries:
            with zipfile.ZipFile(copy, "w") as written:
                for each in archive.infolist():
                    _copy_member(archive, each, written, weights if each.filename == WEIGHTS else None)
            replacing.put_in_place(copy, file)
    return added


def _copy_member(
    archive: zipfile.ZipFile, member: zipfile.ZipInfo, written: zipfile.ZipFile, changed: Path | None
) -> None:
    made = zipfile.ZipInfo(member.filename, member.date_time)
    made.compress_type, made.external_attr = member.compress_type, member.external_attr
    made.file_size = changed.stat().st_size if changed else member.file_size  # tells whether to use ZIP64
    with changed.open("rb") if changed else archive.open(member) as source, written.open(made, "w") as target:
        shutil.copyfileobj(source, target)


# ---- which layer an entry belongs to ---------------------------------------------------------------------


def _owns_kernel(_: str, kernel_shape: tuple[int, ...], descriptor: ConvDescriptor) -> bool:
    *kernel, in_per_group, filters = kernel_shape
    return descriptor.w_dims == (filters, in_per_group, *kernel)


def _owner(layers: Sequence[LayerConfig]) -> _Owns:
    named: dict[str, list[LayerConfig]] = {}
    for layer in layers:
        named.setdefault(layer.name, []).append(layer)

    def owns(name: str, kernel_shape: tuple[int, ...], descriptor: ConvDescriptor) -> bool:
        candidates = named.get(name, ()) if name else layers
        return any(layer.matches(descriptor, kernel_shape) for layer in candidates)

    return owns


# ---- the weights -----------------------------------------------------------------------------------------


def _into_weights(path: Path, records: Sequence[Record], owns: _Owns) -> Added:
    """Change a file of weights, which is nobody else's."""
    offered = [
        (
            ConvDescriptor.from_key(record.key),
            replace(record, provenance=Provenance.IMPORTED)
            if record.provenance in (Provenance.MEASURED, Provenance.SHIPPED)
            else record,
        )
        for record in records
    ]
    entries = layers = 0
    with h5py.File(path, "r+", locking=False) as file:
        if is_database(file):
            raise ArchiveError("it is a database, to which `keras-tunedconv merge` adds.")
        for place, group in list(walk(file)):
            kernel_shape = _kernel_shape(group)
            if kernel_shape is None:
                continue
            name = layer_name(group)
            own = [record for descriptor, record in offered if owns(name, kernel_shape, descriptor)]
            try:
                added = _into_layer(group, own) if own else 0
            except SchemaError as error:
                raise ArchiveError(f"the entries that {place} has cannot be read: {error}") from error
            entries += added
            layers += added > 0
    return Added(entries, layers)


def _kernel_shape(group: h5py.Group) -> tuple[int, ...] | None:
    """Shape of a layer's first weight where it can be a kernel; `None` for groups of anything else."""
    try:
        kernel = hdf5.child(hdf5.child(group, "vars", h5py.Group), "0", h5py.Dataset)
    except SchemaError:
        return None
    return tuple(kernel.shape) if kernel.shape is not None and len(kernel.shape) == _KERNEL_RANK else None


def _into_layer(group: h5py.Group, records: Sequence[Record]) -> int:
    with hdf5.compact_groups():
        tuning = (
            hdf5.child(group, "tuning", h5py.Group) if "tuning" in group else group.create_group("tuning")
        )
        is_new = "vars" not in tuning
        columns = tuning.create_group("vars") if is_new else hdf5.child(tuning, "vars", h5py.Group)
    known = {} if is_new else {identity(r): r for r in decode(hdf5.read_columns([columns])).records}
    changed = merge_into(known, records)
    if changed:
        encoded = encode(list(known.values()))
        for name in list(columns):
            del columns[name]
        hdf5.write_columns(columns, encoded)
    return len(changed)
