"""The verdict on reports with known numbers."""

import pytest

from keras_tunedconv.bench import figures

GROUPED, DENSE = "8,128,28,128,3,1,32", "8,64,56,64,3,1,1"


def conv(*rows):
    results = []
    for problem, direction, milliseconds in rows:
        results.append(
            {
                "problem": problem,
                "direction": direction,
                "milliseconds": dict(milliseconds),
                "stock_over_tuned": milliseconds["stock"] / milliseconds["tuned"],
                "tuned_over_engine": milliseconds["tuned"] / milliseconds["engine"],
            }
        )
    return {"results": results}


def overhead(**changes):
    tuning = {
        "tuning_seconds": 40.0,
        "keys_measured_with_file": 0,
        "file_bytes_added": 100 * 1024,
        "first_step_with_file_seconds": 9.0,
        "first_step_untuned_seconds": 10.0,
    }
    report = {"import_seconds": 0.05, "lookup_seconds": 1e-7, "call": {"beyond_engine_us": 5.0}}
    cache = {"first_step_stock_seconds": 5.0, "first_step_tuned_seconds": 4.0}
    return report | {"tuning": tuning | changes, "cache": cache}


def model(backend, stock, tuned):
    return {
        "backend": backend,
        "stock": {"step_seconds": stock},
        "tuned": {"step_seconds": tuned},
        "step_speedup": stock / tuned,
        "peak_ratio": 1.02,
    }


def sizes(first=1.2, second=0.9):
    return {"first_pass_ratio": first, "second_pass_ratio": second}


def warm_up(seconds, left=5):
    return {"batches": [8, 16], "budget_seconds": 60.0, "seconds": seconds, "measured": 40, "left": left}


@pytest.fixture
def reports():
    dense = {"stock": 10.0, "tuned": 10.0, "engine": 9.5}
    grouped = {"stock": 2000.0, "framework": 2.0, "tuned": 2.0, "engine": 1.9}
    rows = [(DENSE, "forward", dense), (GROUPED, "forward", grouped)]
    backward = [(GROUPED, "backward_data", grouped), (GROUPED, "backward_filter", grouped)]
    return {
        "tensorflow": {
            "conv": conv(*rows),
            "conv_xla": conv(*rows),
            "overhead": overhead(),
            "model_graph": model("tensorflow", 1.2, 1.0),
            "model_xla": model("tensorflow", 1.5, 1.1),
            "sizes": sizes(),
            "warm_up": warm_up(65.0),
            "inspect": {"entries": 10_000, "seconds": 0.8},
        },
        "jax": {
            "conv": conv(*rows, *backward),
            "overhead": overhead(),
            "model_auto": model("jax", 3.0, 1.0),
            "sizes": sizes(),
        },
        "torch": {
            "conv": conv(*rows),
            "overhead": overhead(),
            "model_auto": model("torch", 1.0, 1.0),
            "sizes": sizes(),
        },
    }


def failed(reports):
    return [f.name for f in figures.judge(reports) if not f.passed]


def test_good_reports_pass_every_bar(reports):
    assert failed(reports) == []


def test_every_bar_names_a_command_that_exists(reports):
    from keras_tunedconv.cli.bench import bench

    for figure in figures.judge(reports):
        words = figure.command.split()
        assert words[1:3] == ["keras-tunedconv", "bench"]
        assert words[3] in bench.commands


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (
            lambda r: r["tensorflow"]["conv"]["results"][0].update(tuned_over_engine=1.2),
            "engine called directly",
        ),
        (lambda r: r["tensorflow"]["conv"]["results"][1]["milliseconds"].update(framework=1.5), "own op"),
        (
            lambda r: r["tensorflow"]["conv_xla"]["results"][1]["milliseconds"].update(stock=100.0),
            "jit_compile",
        ),
        (lambda r: r["tensorflow"]["overhead"]["call"].update(beyond_engine_us=21.0), "a call beyond"),
        (lambda r: r["tensorflow"]["overhead"].update(lookup_seconds=2e-6), "Look-up"),
        (lambda r: r["tensorflow"]["overhead"].update(import_seconds=0.2), "import"),
        (lambda r: r["tensorflow"].update(overhead=overhead(tuning_seconds=61.0)), "tuning ResNet50"),
        (lambda r: r["tensorflow"].update(overhead=overhead(keys_measured_with_file=1)), "Keys measured"),
        (lambda r: r["tensorflow"].update(overhead=overhead(file_bytes_added=200 * 1024)), "in its file"),
        (lambda r: r["tensorflow"].update(overhead=overhead(first_step_with_file_seconds=11)), "First step"),
        (lambda r: r["tensorflow"]["model_graph"].update(peak_ratio=1.3), "peak memory"),
        (lambda r: r["tensorflow"].update(model_graph=model("tensorflow", 1.0, 1.0)), "better stock mode"),
        (lambda r: r["jax"]["conv"]["results"][0].update(stock_over_tuned=0.9), "JAX: stock / tuned, worst"),
        (
            lambda r: r["jax"]["overhead"]["cache"].update(first_step_tuned_seconds=6.0),
            "warm compilation cache",
        ),
        (lambda r: r["jax"].update(model_auto=model("jax", 2.0, 1.0)), "jax ResNet50"),
        (lambda r: r["torch"].update(sizes=sizes(first=1.4)), "first pass"),
        (lambda r: r["jax"].update(sizes=sizes(second=1.1)), "second pass"),
        (lambda r: r["tensorflow"].update(warm_up=warm_up(67.0)), "Warm-up"),
        (lambda r: r["tensorflow"].update(warm_up=warm_up(50.0)), "Warm-up"),
        (lambda r: r["tensorflow"]["inspect"].update(seconds=1.2), "`inspect`"),
        (lambda r: r["torch"].update(model_auto=model("torch", 0.9, 1.0)), "torch ResNet50"),
    ],
)
def test_a_missed_bar_is_told(reports, change, name):
    change(reports)
    assert len(failed(reports)) == 1
    assert name in failed(reports)[0]
    assert "**no**" in figures.markdown(figures.judge(reports))


def test_a_warm_up_that_measured_all_may_end_early(reports):
    reports["tensorflow"]["warm_up"] = warm_up(30.0, left=0)
    assert failed(reports) == []
