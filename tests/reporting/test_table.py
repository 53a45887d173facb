"""The report: right lines, right sums, readable everywhere."""

import pytest
from tuning_data import ELSEWHERE, HERE, build, fill, make_keys, make_record, tuned_layers

import keras_tunedconv
from keras_tunedconv import TunedConv2D
from keras_tunedconv.core import registry
from keras_tunedconv.reporting import report
from keras_tunedconv.tuning import environments


@pytest.fixture(autouse=True)
def _environment(monkeypatch):
    monkeypatch.setattr(environments, "current", lambda: frozenset((HERE,)))


@pytest.fixture
def model():
    made = build("functional", TunedConv2D)
    fill(made, time_seconds=1e-3, default_seconds=3e-3, tuning_seconds=0.5)
    return made


def test_it_has_a_line_for_each_layer_and_direction(model):
    made = report(model, show=False)
    names = [layer.name for layer in tuned_layers(model)]
    assert [row.layer for row in made.rows] == [names[0]] * 3 + [names[1]] * 3
    assert [row.record.direction for row in made.rows] == ["forward", "backward_data", "backward_filter"] * 2
    first = made.rows[0].cells()
    assert first[2:7] == ("algorithm 0", "1 ms", "3 ms", "3.00x", "measured")
    assert first[7] == "8x3x16x16 filter 4x3x3x3 pad 1x1 float32"


def test_it_sums_up(model):
    made = report(model, show=False)
    assert made.tuning_seconds == pytest.approx(6 * 0.5)
    assert made.saved_seconds == pytest.approx(6 * 2e-3)


def test_only_the_largest_batch_counts_as_saved(model):
    for batch in (4, 3):
        fill(model, batch=batch, time_seconds=1.0, default_seconds=2.0)
    made = report(model, show=False)
    assert len(made.rows) == 18
    assert made.saved_seconds == pytest.approx(6 * 2e-3)


def test_a_convolution_of_two_layers_is_measured_once_and_saves_twice():
    import keras

    made = keras.Sequential(
        [keras.Input((16, 16, 3)), *(TunedConv2D(3, 3, padding="same") for _ in range(2))]
    )
    fill(made, time_seconds=1e-3, default_seconds=3e-3, tuning_seconds=0.5)
    found = report(made, show=False)
    assert found.tuning_seconds == pytest.approx(3 * 0.5)
    assert found.saved_seconds == pytest.approx(6 * 2e-3)


def test_entries_of_other_environments_are_only_counted(model):
    fill(model, environment=ELSEWHERE)
    made = report(model, show=False)
    assert len(made.rows) == 6
    assert made.foreign == 6
    assert "6 entries of other environments" in str(made)


def test_it_takes_in_what_came_since(model):
    key = make_keys((5, 16, 16, 3), (3, 3, 3, 4), padding="same")[0]
    registry.put(make_record(key))
    assert key in [row.record.key for row in report(model, show=False).rows]


def test_without_a_model_it_tells_of_the_process():
    keys = make_keys((8, 16, 16, 3), (3, 3, 3, 4)) + make_keys((4, 16, 16, 3), (3, 3, 3, 4))
    for key in keys:
        registry.put(make_record(key, time_seconds=1e-3, default_seconds=3e-3))
    made = report(show=False)
    assert len(made.rows) == 6
    assert {row.layer for row in made.rows} == {""}
    assert made.saved_seconds == pytest.approx(3 * 2e-3)


def test_nothing_is_a_report_too():
    made = report(build("functional", TunedConv2D), show=False)
    assert made.rows == []
    assert "0 s spent measuring" in str(made)


def test_it_is_printed_unless_asked_not_to(model, capsys):
    report(model, show=False)
    assert capsys.readouterr().out == ""
    keras_tunedconv.report(model)
    out = capsys.readouterr().out
    assert "backward_filter" in out
    assert "saved in each step" in out


def test_names_are_not_taken_for_markup(capsys):
    registry.put(make_record(algorithm="[bold]x[/] <b>"))
    made = report()
    assert "[bold]x[/] <b>" in str(made)
    assert "&lt;b&gt;" in made._repr_html_()
    assert repr(made).startswith("<Report of 1 entries")


def test_what_is_no_model_is_an_error_that_says_how_files_are_reported():
    with pytest.raises(TypeError, match="keras-tunedconv report FILE"):
        report("model.keras")
