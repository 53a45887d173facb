"""Groups that were made to hurt are refused before their data is read."""

from contextlib import nullcontext

import h5py
import numpy as np
import pytest
from tuning_data import content, make_records

from keras_tunedconv.tuning import hdf5, schema
from keras_tunedconv.tuning.schema import SchemaError, decode, encode


@pytest.fixture
def columns():
    return encode(make_records(3))


@pytest.fixture
def file(tmp_path):
    with h5py.File(tmp_path / "entries.h5", "w") as opened:
        yield opened


def refuses(group, match):
    with pytest.raises(SchemaError, match=match):
        hdf5.read_columns([group])


def test_columns_come_back(file, columns):
    hdf5.write_columns(file, columns)
    read = hdf5.read_columns([file])
    assert content(decode(read).records) == content(decode(columns).records)


def test_a_file_that_was_packed_again_is_read(file, columns):
    for name, array in columns.items():
        file.create_dataset(name, data=array, compression="gzip", shuffle=True, fletcher32=True)
    assert len(decode(hdf5.read_columns([file])).records) == 3


@pytest.mark.parametrize("missing", ["text", "numbers"])
def test_half_of_the_columns_are_refused(file, columns, missing):
    hdf5.write_columns(file, columns)
    del file[missing]
    refuses(file, f"'{missing}' is missing")


def test_soft_links_are_refused(file, columns):
    hdf5.write_columns(file.create_group("elsewhere"), columns)
    file["text"] = h5py.SoftLink("/elsewhere/text")
    file["numbers"] = file["elsewhere/numbers"]
    refuses(file, "SoftLink")


def test_external_links_are_refused_without_opening_their_file(file, columns, tmp_path):
    hdf5.write_columns(file, columns)
    del file["numbers"]
    file["numbers"] = h5py.ExternalLink(str(tmp_path / "missing.h5"), "/numbers")
    refuses(file, "ExternalLink")


def test_data_in_another_file_is_refused(file, columns, tmp_path):
    hdf5.write_columns(file, columns)
    raw = tmp_path / "numbers.bin"
    raw.write_bytes(columns.numbers.tobytes())
    del file["numbers"]
    external = [(str(raw), 0, h5py.h5f.UNLIMITED)]
    file.create_dataset("numbers", columns.numbers.shape, "f8", external=external)
    refuses(file, "another file")


def test_virtual_data_is_refused(file, columns):
    hdf5.write_columns(file, columns)
    layout = h5py.VirtualLayout(columns.numbers.shape, "f8")
    layout[:] = h5py.VirtualSource(file["numbers"])
    del file["numbers"]
    file.create_virtual_dataset("numbers", layout)
    refuses(file, "another file")


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("text", (schema.MAX_TEXT_BYTES + 1,)),
        ("text", (2**50,)),
        ("text", (10, 10)),
        ("numbers", (2**40, schema.COLUMN_COUNT)),
        ("numbers", (schema.MAX_RECORDS + 1, schema.COLUMN_COUNT)),
        ("numbers", (1, schema.COLUMN_COUNT + 1)),
        ("numbers", (schema.COLUMN_COUNT,)),
    ],
)
def test_shapes_are_checked_before_anything_is_read(file, columns, name, shape):
    hdf5.write_columns(file, columns)
    dtype = file[name].dtype
    del file[name]
    # Chunks that were never written: a petabyte costs nothing.
    file.create_dataset(name, shape, dtype, chunks=tuple(min(n, 1024) for n in shape))
    refuses(file, "must have shape")


def test_contiguous_data_that_was_never_stored_is_refused(file, columns):
    hdf5.write_columns(file, columns)
    del file["numbers"]
    file.create_dataset("numbers", (100, schema.COLUMN_COUNT), "f8")
    refuses(file, "claims 12800 bytes and stores 0")


def test_chunks_larger_than_their_data_are_refused(file, columns):
    hdf5.write_columns(file, columns)
    del file["text"]
    file.create_dataset("text", data=columns.text, chunks=(2**31,), maxshape=(None,))
    refuses(file, "chunks of over")


def test_unknown_filters_are_refused(file, columns):
    hdf5.write_columns(file, columns)
    del file["text"]
    file.create_dataset("text", data=columns.text, compression="lzf")
    refuses(file, "filters")


@pytest.mark.parametrize("dtype", ["int8", "S1", "float64", h5py.string_dtype(), [("a", "u1")]])
def test_other_dtypes_are_refused(file, columns, dtype):
    hdf5.write_columns(file, columns)
    del file["text"]
    file.create_dataset("text", (10,), dtype)
    refuses(file, "dtype")


@pytest.mark.parametrize("value", [h5py.Empty("u1"), np.uint8(1), None])
def test_no_data_scalars_and_groups_are_refused(file, columns, value):
    hdf5.write_columns(file, columns)
    del file["text"]
    if value is None:
        file.create_group("text")
    else:
        file["text"] = value
    refuses(file, "text")


def test_compact_groups_are_smaller_and_leave_the_setting_alone(tmp_path, columns):
    def size(name, context):
        with h5py.File(tmp_path / name, "w") as opened:
            for i in range(20):
                layer = opened.create_group(f"layer{i}")
                with context():
                    group = layer.create_group("tuning").create_group("vars")
                hdf5.write_columns(group, columns)
        return (tmp_path / name).stat().st_size

    before = h5py.get_config().track_order
    assert size("compact.h5", hdf5.compact_groups) < size("plain.h5", nullcontext) - 20 * 1500
    assert h5py.get_config().track_order is before
    with h5py.File(tmp_path / "compact.h5") as opened:
        assert len(decode(hdf5.read_columns([opened["layer3/tuning/vars"]])).records) == 3


def test_columns_may_lie_in_two_groups(file, columns):
    first, second = file.create_group("a"), file.create_group("b")
    first["text"], second["numbers"] = columns.text, columns.numbers
    assert not hdf5.holds_columns([first])
    assert hdf5.holds_columns([first, second])
    assert np.array_equal(hdf5.read_columns([first, second]).numbers, columns.numbers)
