"""Workplaces beside files: one for each writer, whatever the others remove."""

from __future__ import annotations

import threading

from keras_tunedconv.tuning import replacing


def test_no_writer_loses_its_workplace_to_another(tmp_path):
    failures = []

    def write():
        try:
            for _ in range(300):
                with replacing.workplace(tmp_path / "model.keras") as folder:
                    (folder / "part").write_bytes(b"1")
                    assert (folder / "part").exists()
        except (AssertionError, OSError) as error:
            failures.append(error)

    threads = [threading.Thread(target=write) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert not list(tmp_path.iterdir())


def test_what_a_killed_writer_left_is_removed(tmp_path):
    left = replacing.workplace_of(tmp_path / "model.keras", "0123abcd")
    left.mkdir()
    (left / "part").write_bytes(b"1")
    with replacing.workplace(tmp_path / "model.keras"):
        assert not left.exists()
