"""Reports as pages and pictures: what is in them, without a display, and what a wrong request gets."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser

import pytest
from click.testing import CliRunner
from tuning_data import ELSEWHERE, HERE, make_keys, make_record, make_search

from keras_tunedconv.cli.main import main
from keras_tunedconv.core.first_step import FirstStep
from keras_tunedconv.core.record import Provenance
from keras_tunedconv.reporting.summary import by_layer, largest
from keras_tunedconv.reporting.table import Report, rows_of
from keras_tunedconv.tuning import database

PNG = b"\x89PNG\r\n\x1a\n"


def make_report(layers=3, **arguments):
    found = [
        (
            f"conv_{i}",
            make_record(key, time_seconds=1e-3, default_seconds=2e-3 + i * 1e-3, tuning_seconds=0.5),
        )
        for i in range(layers)
        for key in make_keys((8, 16, 16, 3 + i), (3, 3, 3 + i, 4))
    ]
    return Report(rows_of(found), **arguments)


class Page(HTMLParser):
    """Texts of a page, and whether every element was closed that has to be."""

    def __init__(self, text):
        super().__init__()
        self.texts, self.open, self.attributes = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.attributes += attributes
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def test_a_page_has_layers_directions_totals_and_the_first_step(tmp_path):
    report = make_report(first_step=FirstStep(12.5, 4.5), title="Of <me> & you")
    report.save(tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    page = Page(text)
    assert page.open == []
    assert page.texts.count("Of <me> & you") == 2
    for wanted in ("conv_0", "conv_2", "forward", "backward_filter", "3 ms of 6 ms, 2.00x", "4.5 s", HERE):
        assert wanted in page.texts, wanted
    assert "The first step: 12.5 s" in page.texts
    assert not re.search(r"<script|<link|src=|https?:", text)


def test_widths_are_shares_of_the_longest_bar(tmp_path):
    make_report(2).save(tmp_path / "report.html")
    widths = [float(w) for w in re.findall(r"width:([\d.]+)%", (tmp_path / "report.html").read_text())]
    assert max(widths) == 100
    assert min(widths) > 0
    # Layer 1: 3 ms of 9 ms, in three directions, beneath it the default's 9 ms, the longest of the layers.
    assert widths.count(11.11) == 6


def test_names_are_not_taken_for_markup(tmp_path):
    record = make_record(algorithm="<b>x</b>", environment="engine=<i>")
    Report(rows_of([("<script>", record)])).save(tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    assert "<script>" not in text
    assert "<b>x" not in text
    assert "engine=<i>" not in text


@pytest.mark.parametrize("layers", [0, 1, 3, 90])
@pytest.mark.parametrize("step", [None, FirstStep(12.5, 4.5), FirstStep(0.0, 0.0)])
def test_a_picture_is_drawn_whatever_there_is(tmp_path, layers, step):
    pytest.importorskip("matplotlib")
    if layers == 90 and step is not None:
        pytest.skip("large ones once")
    make_report(layers, first_step=step).save(tmp_path / "report.png")
    assert (tmp_path / "report.png").read_bytes().startswith(PNG)
    make_report(layers, first_step=step).save(tmp_path / "report.html")


def test_copied_entries_have_no_bars(tmp_path):
    pytest.importorskip("matplotlib")
    copied = make_record(
        time_seconds=0.0, default_seconds=0.0, tuning_seconds=0.0, provenance=Provenance.COPIED
    )
    report = Report(rows_of([("conv", copied)]))
    assert [layer.total for layer in by_layer(report.rows, report.stepped)] == [0.0]
    report.save(tmp_path / "report.png")
    report.save(tmp_path / "report.html")
    assert "No entry has a measured time" in (tmp_path / "report.html").read_text()


def test_a_copy_of_a_larger_batch_does_not_hide_what_was_measured():
    small, large = (make_keys((batch, 16, 16, 3), (3, 3, 3, 4))[0] for batch in (4, 8))
    measured = make_record(small, time_seconds=1e-3, default_seconds=3e-3)
    copied = make_record(large, time_seconds=0.0, default_seconds=0.0, provenance=Provenance.COPIED)
    assert Report(rows_of([("conv", measured), ("conv", copied)])).saved_seconds == pytest.approx(2e-3)


def test_a_convolution_of_two_layers_is_measured_with_the_first():
    key = make_keys((8, 16, 16, 3), (3, 3, 3, 4))[0]
    record = make_record(key, time_seconds=1e-3, tuning_seconds=0.5)
    report = Report(rows_of([("a", record), ("b", record)]))
    layers = by_layer(report.rows, report.stepped)
    assert [(layer.label, layer.total, layer.tuning_seconds) for layer in layers] == [
        ("a", 1e-3, 0.5),
        ("b", 1e-3, 0.0),
    ]


def test_the_largest_stay_in_their_order():
    report = make_report(5)
    layers = by_layer(report.rows, report.stepped)
    chosen, others = largest(layers, 2, lambda layer: layer.default_total)
    assert [layer.label for layer in chosen] == ["conv_3", "conv_4"]
    assert others == pytest.approx(3 * (2e-3 + 3e-3 + 4e-3))


@pytest.mark.parametrize("name", ["report.pdf", "report", "report.HTML"])
def test_another_format_is_an_error_that_lists_those_there_are(tmp_path, name):
    with pytest.raises(ValueError, match=r"'.html', '.png'.*Received"):
        make_report().save(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_candidates_are_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    from keras_tunedconv.reporting.candidates import save_candidates

    save_candidates(make_search(), tmp_path / "candidates.png")
    assert (tmp_path / "candidates.png").read_bytes().startswith(PNG)


# ---- the command ----------------------------------------------------------------------------------------


def run(*arguments):
    return CliRunner().invoke(main, ["report", *map(str, arguments)])


@pytest.fixture
def file(tmp_path):
    keys = make_keys((8, 16, 16, 3), (3, 3, 3, 4))
    records = [make_record(key, time_seconds=1e-3, default_seconds=3e-3) for key in keys]
    searches = [make_search(key) for key in keys]
    path = tmp_path / "tuning.h5"
    database.merge_into(path, [*records, make_record(environment=ELSEWHERE)], searches=searches)
    return path


def test_a_table_is_as_wide_as_its_lines(file):
    result = run(file)
    assert result.exit_code == 0
    line = next(line for line in result.output.splitlines() if "backward_filter" in line)
    for text in ("jit:avx2#0", "3 ms", "3.00x", "8x3x16x16 filter 4x3x3x3 float32"):
        assert text in line
    assert len(line) > 80
    assert "1 entries of other environments" in result.output


def test_files_and_environments_can_be_chosen(file, tmp_path):
    pytest.importorskip("matplotlib")
    result = run(file, "--html", tmp_path / "a.html", "--png", tmp_path / "a.png", "--environment", "H200")
    assert result.exit_code == 0, result.output
    assert ELSEWHERE in (tmp_path / "a.html").read_text()
    assert (tmp_path / "a.png").read_bytes().startswith(PNG)
    result = run(file, "--candidates", "backward_data|", "--png", tmp_path / "c.png")
    assert result.exit_code == 0, result.output
    assert (tmp_path / "c.png").read_bytes().startswith(PNG)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--html", "out.png"), r"must be named \*\.html"),
        (("--png", "out.html"), r"must be named \*\.png"),
        (("--environment", "A100"), "engine=cudnn"),
        (("--candidates", "x"), "--png"),
        (("--candidates", "nothing", "--png", "out.png"), r"0 recorded searches[^|]*\n  \w+\|x="),
        (("--candidates", "x=", "--png", "out.png"), r"3 recorded searches[^|]*\n  \w+\|x="),
        (("--html", "/none/out.html"), "No such file"),
    ],
)
def test_a_wrong_request_is_an_error_that_says_how_to_go_on(file, tmp_path, arguments, message, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run(file, *arguments)
    assert result.exit_code == 2
    assert re.search(message, result.output), result.output
    assert isinstance(result.exception, SystemExit)


def test_no_such_file_lists_those_there_are(file):
    result = run(file.with_name("tunnig.h5"))
    assert result.exit_code == 2
    assert "tuning.h5" in result.output


def test_it_needs_neither_a_display_nor_a_backend(file, tmp_path):
    pytest.importorskip("matplotlib")
    code = (
        "import sys; from keras_tunedconv.cli.main import main; "
        f"main(['report', {str(file)!r}, '--png', {str(tmp_path / 'r.png')!r}], standalone_mode=False); "
        "print(sorted({'keras', 'tensorflow', 'jax', 'torch', 'matplotlib.pyplot'} & set(sys.modules)))"
    )
    environment = {name: value for name, value in os.environ.items() if name != "DISPLAY"}
    environment["MPLBACKEND"] = "TkAgg"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"


def test_without_matplotlib_a_picture_is_an_error_with_the_command(file, tmp_path):
    code = (
        "import sys; sys.modules['matplotlib'] = None; from keras_tunedconv.cli.main import main; "
        f"main(['report', {str(file)!r}, '--png', {str(tmp_path / 'r.png')!r}])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 2
    assert "pip install 'keras-tunedconv[report]'" in done.stderr
    assert "Traceback" not in done.stderr
