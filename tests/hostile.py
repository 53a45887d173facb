"""What somebody may put in the place of a file's entries, one kind a function.

Each takes an open HDF5 file and the path of the group that holds the columns, in a model's file or in a
database, and spoils it. A file that an entry might lead into is beside it, named `secret`.
"""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np

from keras_tunedconv.tuning import schema

SECRET = b"secret" * 1000


def secret_beside(file):
    path = Path(file.filename).with_name("secret")
    path.write_bytes(SECRET)
    return path


def put(file, place, name, data=None, **options):
    del file[f"{place}/{name}"]
    return file.create_dataset(f"{place}/{name}", data=data, **options)


def put_link(file, place, name, link):
    del file[f"{place}/{name}"]
    file[f"{place}/{name}"] = link


def replace_text(file, place, change):
    text = change(file[f"{place}/text"][:].tobytes())
    put(file, place, "text", np.frombuffer(text, "u1"))


def set_numbers(file, place, column, value):
    file[f"{place}/numbers"][:, schema._POSITION[column]] = value


# ---- links -------------------------------------------------------------------------------------------


def soft_link_for_text(file, place):
    file.move(f"{place}/text", "elsewhere")
    file[f"{place}/text"] = h5py.SoftLink("/elsewhere")


def soft_link_to_itself(file, place):
    put_link(file, place, "text", h5py.SoftLink(f"/{place}/text"))


def dangling_link_for_numbers(file, place):
    put_link(file, place, "numbers", h5py.SoftLink("/nowhere"))


def external_link_for_numbers(file, place):
    put_link(file, place, "numbers", h5py.ExternalLink(str(secret_beside(file)), "/"))


def external_link_to_a_device(file, place):
    put_link(file, place, "text", h5py.ExternalLink("/dev/zero", "/"))


def cycle(file, place):
    put_link(file, place, "text", file["/"])


def committed_type_for_text(file, place):
    put_link(file, place, "text", np.dtype("f8"))


# ---- data that are elsewhere ---------------------------------------------------------------------------


def virtual_dataset(file, place):
    shape = file[f"{place}/numbers"].shape
    layout = h5py.VirtualLayout(shape, "f8")
    layout[:] = h5py.VirtualSource(str(secret_beside(file)), "x", shape)
    del file[f"{place}/numbers"]
    file.create_virtual_dataset(f"{place}/numbers", layout)


def external_dataset(file, place):
    size = file[f"{place}/text"].shape[0]
    put(file, place, "text", shape=(size,), dtype="u1", external=[(str(secret_beside(file)), 0, size)])


# ---- bombs ---------------------------------------------------------------------------------------------


def shape_bomb(file, place):
    shape = (2**40, schema.COLUMN_COUNT)
    put(file, place, "numbers", shape=shape, dtype="f8", chunks=(1024, schema.COLUMN_COUNT))


def unwritten_bomb(file, place):
    put(file, place, "numbers", shape=(schema.MAX_RECORDS, schema.COLUMN_COUNT), dtype="f8")


def chunk_bomb(file, place):
    put(
        file,
        place,
        "numbers",
        shape=(3, schema.COLUMN_COUNT),
        dtype="f8",
        maxshape=(None, 16),
        chunks=(2**24, 16),
    )


def compression_bomb(file, place):
    bomb = np.zeros(schema.MAX_TEXT_BYTES + 1, "u1")
    put(file, place, "text", bomb, compression="gzip", chunks=(2**20,))


def compression_bomb_of_the_largest_size(file, place):
    bomb = np.zeros(schema.MAX_TEXT_BYTES, "u1")
    put(file, place, "text", bomb, compression="gzip", chunks=(2**20,))


def another_filter(file, place):
    put(file, place, "text", file[f"{place}/text"][:], compression="lzf")


def huge_string(file, place):
    replace_text(
        file, place, lambda text: text.replace(b"jit", b"j" * 10**6).replace(b"algorithm", b"a" * 10**6)
    )


def a_million_entries(file, place):
    numbers = file[f"{place}/numbers"][:]
    put(file, place, "numbers", np.tile(numbers, (10**6 // len(numbers), 1)))


def a_million_strings(file, place):
    replace_text(file, place, lambda text: text + b"\n" * 10**6)


def thousands_of_names(file, place):
    for i in range(20_000):
        file[f"{place}/{i}/\u2620"[: -2 if i % 2 else None]] = h5py.SoftLink("/nowhere")
    put_link(file, place, "text", h5py.SoftLink("/nowhere"))


# ---- text that is none ---------------------------------------------------------------------------------


def zero_bytes(file, place):
    replace_text(file, place, lambda text: text.replace(b"engine=test", b"engine\0test"))


def broken_utf8(file, place):
    replace_text(file, place, lambda text: text.replace(b"engine=test", b"engine\xfftest"))


def control_characters(file, place):
    replace_text(file, place, lambda text: text.replace(b"engine=test", b"engine\x1b[2Jtest"))


def later_schema(file, place):
    replace_text(file, place, lambda text: text.replace(b"tuning 1", b"tuning 9"))


def another_header(file, place):
    replace_text(file, place, lambda text: b"cos\nsystem\n(S'id'\ntR." + text)


def no_text(file, place):
    put(file, place, "text", np.zeros(0, "u1"))


def keys_that_contradict_themselves(file, place):
    replace_text(file, place, lambda text: text.replace(b"groups=1", b"groups=9"))


def keys_that_are_code(file, place):
    replace_text(file, place, lambda text: text.replace(b"groups=1", b"groups=__import__('os').abort()"))


# ---- dtypes and shapes -----------------------------------------------------------------------------------


def integers_for_numbers(file, place):
    put(file, place, "numbers", file[f"{place}/numbers"][:].astype("i4"))


def big_endian_numbers(file, place):
    put(file, place, "numbers", file[f"{place}/numbers"][:].astype(">f8"))


def strings_for_text(file, place):
    put(file, place, "text", ["a", "b"], dtype=h5py.string_dtype())


def objects_for_numbers(file, place):
    put(file, place, "numbers", [file.ref] * 3, dtype=h5py.ref_dtype)


def structures_for_numbers(file, place):
    put(file, place, "numbers", np.zeros(3, [("key", "S9"), ("time", "f8")]))


def a_scalar_for_numbers(file, place):
    put(file, place, "numbers", 1.0)


def nothing_for_numbers(file, place):
    put(file, place, "numbers", h5py.Empty("f8"))


def more_columns(file, place):
    put(file, place, "numbers", np.ones((3, schema.COLUMN_COUNT + 1)))


def a_missing_column(file, place):
    del file[f"{place}/numbers"]


# ---- numbers that cannot be ------------------------------------------------------------------------------


def absurd_workspace(file, place):
    set_numbers(file, place, "workspace_bytes", 2.0**62)


def not_a_number(file, place):
    set_numbers(file, place, "time_seconds", np.nan)


def negative_time(file, place):
    set_numbers(file, place, "time_seconds", -1.0)


def lines_that_are_not_there(file, place):
    set_numbers(file, place, "algorithm", 1e300)


def halves_of_lines(file, place):
    set_numbers(file, place, "environment", 1.5)


def unknown_provenance(file, place):
    set_numbers(file, place, "provenance", 99)


KINDS = (
    soft_link_for_text,
    soft_link_to_itself,
    dangling_link_for_numbers,
    external_link_for_numbers,
    external_link_to_a_device,
    cycle,
    committed_type_for_text,
    virtual_dataset,
    external_dataset,
    shape_bomb,
    unwritten_bomb,
    chunk_bomb,
    compression_bomb,
    compression_bomb_of_the_largest_size,
    another_filter,
    huge_string,
    a_million_entries,
    a_million_strings,
    thousands_of_names,
    zero_bytes,
    broken_utf8,
    control_characters,
    later_schema,
    another_header,
    no_text,
    keys_that_contradict_themselves,
    keys_that_are_code,
    integers_for_numbers,
    big_endian_numbers,
    strings_for_text,
    objects_for_numbers,
    structures_for_numbers,
    a_scalar_for_numbers,
    nothing_for_numbers,
    more_columns,
    a_missing_column,
    absurd_workspace,
    not_a_number,
    negative_time,
    lines_that_are_not_there,
    halves_of_lines,
    unknown_provenance,
)
