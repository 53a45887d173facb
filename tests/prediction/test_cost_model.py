"""The cost model on searches whose times follow a rule, and its evaluation on ones counted by hand."""

import json
import math
import time
from dataclasses import replace

import pytest
from click.testing import CliRunner
from tuning_data import ELSEWHERE, HERE

from keras_tunedconv.bench import candidates, problem
from keras_tunedconv.cli.main import main
from keras_tunedconv.core.descriptor import forward_descriptor
from keras_tunedconv.core.record import Record
from keras_tunedconv.core.trials import Search, Trial, TrialState
from keras_tunedconv.prediction import evaluation
from keras_tunedconv.prediction.features import family, features
from keras_tunedconv.prediction.model import CostModel
from keras_tunedconv.tuning import database

NAMES = ["default", "few", "many", "terrible"]


def describe(channels, size=16, batch=8, **arguments):
    return forward_descriptor(
        (batch, size, size, channels), (3, 3, channels, channels), padding="same", **arguments
    )


def seconds_of(descriptor):
    """`few` is best for few channels, `many` for many, the library's default never."""
    channels = descriptor.w_dims[1]
    few, many = (channels / 32) ** 0.5, (32 / channels) ** 0.5
    return dict(zip(NAMES, (1.5 * max(few, many), few, many, 50.0), strict=True))


def searched(descriptor, environment=HERE, screen=1.0):
    trials = tuple(
        Trial(name, TrialState.FINALIST, i, screen_seconds=screen, estimate_seconds=seconds)
        for i, (name, seconds) in enumerate(seconds_of(descriptor).items())
    )
    return Search(descriptor.key, environment, int(time.time()), trials)


@pytest.fixture
def model():
    sizes = (7, 14, 28, 56)
    return CostModel(searched(describe(c, s)) for c in (4, 8, 16, 64, 128, 256) for s in sizes)


@pytest.mark.parametrize(("channels", "best"), [(6, "few"), (12, "few"), (96, "many"), (200, "many")])
def test_unseen_convolutions_get_what_their_neighbours_had(model, channels, best):
    order = model.order(describe(channels, 20), HERE, NAMES)
    assert order[0] == best
    assert order[-1] == "terrible"
    assert sorted(order) == sorted(NAMES)


def test_searches_of_keys_that_are_none_are_left_out():
    good = [searched(describe(channels)) for channels in (4, 8, 16)]
    bad = [replace(each, key=each.key.replace("groups=1", "groups=__import__")) for each in good]
    arguments = describe(6), HERE, NAMES
    assert CostModel([*bad, *good]).slowness(*arguments) == CostModel(good).slowness(*arguments)
    assert CostModel(bad).slowness(*arguments) is None


def test_slowness_is_bounded_and_ordered(model):
    default, few, _, terrible = model.slowness(describe(6, 20), HERE, NAMES)
    assert 0 <= few < default <= terrible <= 1


def test_no_opinion_where_nothing_like_it_was_seen(model):
    descriptor = describe(6)
    assert model.slowness(descriptor, ELSEWHERE, NAMES) is None
    assert model.slowness(descriptor.with_direction("backward_data"), HERE, NAMES) is None
    assert model.slowness(describe(6, dtype="bfloat16"), HERE, NAMES) is None
    assert model.slowness(descriptor, HERE, []) is None
    assert CostModel([]).order(descriptor, HERE, NAMES) == NAMES


def test_an_unknown_default_is_trusted_and_an_unknown_rival_comes_last(model):
    assert model.order(describe(6), HERE, ["new", *NAMES]) == ["new", *NAMES]
    assert model.order(describe(6), HERE, ["default", "new", "few"]) == ["few", "default", "new"]
    assert model.slowness(describe(6), HERE, ["default", "new"])[1] == math.inf


def test_a_name_with_other_settings_is_judged_by_its_engine():
    channels = (4, 6, 8, 12, 16, 20, 24, 28)
    names = ["x:slow:k1=1", *(f"x:fast:k1={i}" for i in range(9))]
    searches = []
    for i, count in enumerate(channels):
        descriptor = describe(count)
        times = {names[0]: 2.0, names[1 + i]: 1.0}
        trials = tuple(
            Trial(name, TrialState.FINALIST, j, estimate_seconds=seconds)
            for j, (name, seconds) in enumerate(times.items())
        )
        searches.append(Search(descriptor.key, HERE, 0, trials))
    model = CostModel(searches)
    assert model.order(describe(10), HERE, [names[0], names[9]]) == [names[9], names[0]]
    assert model.order(describe(10), HERE, [names[0], "x:new"]) == [names[0], "x:new"]


def test_other_dtypes_tell_where_the_own_one_says_nothing():
    few = [searched(describe(c, 7)) for c in (4, 5, 6, 7, 8, 9, 10, 11)]
    many = [searched(describe(c, dtype="bfloat16")) for c in (128, 136, 144, 152, 160, 168, 176, 184)]
    order = CostModel([*few, *many]).order(describe(6, dtype="bfloat16"), HERE, NAMES)
    assert order[0] == "few"
    assert CostModel(many).order(describe(6, dtype="bfloat16"), HERE, NAMES)[0] == "many"


def test_odd_names_and_times_are_borne():
    odd = ("", "/", ":::", "#", "a:b:k=" + "9" * 500, "k=1,=,+/=", "\u2028" * 9, "x" * 10_000)
    searches = []
    for channels in range(4, 16):
        trials = [
            Trial(name, TrialState.FINALIST, i, estimate_seconds=seconds)
            for i, (name, seconds) in enumerate(
                zip(odd, (1e7, 5e-324, 1.0, 2.0, 1e-9, 1.0, 1.0, 1.0), strict=True)
            )
        ]
        searches.append(Search(describe(channels).key, HERE, 0, (*trials, trials[0])))
    slowness = CostModel(searches).slowness(describe(20), HERE, odd)
    assert all(0 <= value <= 1 for value in slowness)
    assert min(slowness) == slowness[1]


def test_what_was_learnt_is_the_same_in_every_process(model):
    again = CostModel(searched(describe(c, s)) for c in (4, 8, 16, 64, 128, 256) for s in (7, 14, 28, 56))
    assert again.slowness(describe(6, 20), HERE, NAMES) == model.slowness(describe(6, 20), HERE, NAMES)


def test_failures_teach_nothing():
    descriptor = describe(8)
    good = Trial("default", TrialState.WON, 0, estimate_seconds=1.0)
    wrong = Trial("wrong", TrialState.WRONG, 1, estimate_seconds=0.1)
    model = CostModel([Search(descriptor.key, HERE, 0, (good, wrong))])
    assert model.order(descriptor, HERE, ["default", "wrong"]) == ["default", "wrong"]


def test_features_are_numbers_of_a_fixed_count():
    cases = [
        describe(3),
        describe(64, strides=2),
        forward_descriptor((1, 9, 32), (5, 32, 8), padding="valid"),
        forward_descriptor((1, 9, 9, 32), (3, 3, 1, 32), padding="valid", dilation_rate=2),
    ]
    for descriptor in cases:
        assert features(descriptor).shape == features(cases[0]).shape
        assert all(map(math.isfinite, features(descriptor)))
    assert len({family(descriptor) for descriptor in cases}) == 2  # the ranks


# ---- the evaluation --------------------------------------------------------------------------------------


def test_what_is_left_out_is_not_learnt_and_regrets_are_right():
    members = {"a": (4, 8), "b": (8, 256)}
    searches = [searched(describe(c)) for c in (4, 8, 256)]
    problems = {
        name: {evaluation.problem_of(describe(c).key) for c in channels} for name, channels in members.items()
    }
    (found,) = evaluation.evaluate(searches, problems)
    assert (found.environment, found.dtype, found.library.cases) == (HERE, "float32", 4)
    # Without a's convolutions only 256 channels are known, and without b's only 4.
    ratio = {c: seconds_of(describe(c)) for c in (4, 8, 256)}
    expected_a = [ratio[c]["many"] / ratio[c]["few"] for c in (4, 8)]
    expected_b = [1.0, ratio[256]["few"] / ratio[256]["many"]]
    assert found.models["a"][0] == pytest.approx(math.sqrt(math.prod(expected_a)))
    assert found.models["b"][0] == pytest.approx(math.sqrt(math.prod(expected_b)))
    assert found.predicted.nothing_worst == pytest.approx(max(expected_a + expected_b))
    own = [ratio[c]["default"] / min(ratio[c].values()) for c in (4, 8, 8, 256)]
    assert found.library.nothing == pytest.approx(math.exp(sum(map(math.log, own)) / 4))


def test_a_model_is_left_out_in_every_dtype():
    dtypes = ("float32", "bfloat16")
    searches = [searched(describe(c, dtype=dtype)) for c in (4, 256) for dtype in dtypes]
    problems = {name: {evaluation.problem_of(describe(c).key)} for name, c in (("narrow", 4), ("wide", 256))}
    ratio = seconds_of(describe(4))
    for found in evaluation.evaluate(searches, problems):
        # With either model left out, only channels of the other kind are known, whatever their dtype.
        assert found.models["narrow"][0] == pytest.approx(ratio["many"] / ratio["few"])
        assert found.models["wide"][0] == pytest.approx(ratio["many"] / ratio["few"])


def test_time_that_is_allowed_is_counted():
    channels = (2, 3, 4, 5, 6, 7, 8, 200, 220, 256, 280, 300, 320, 340)
    searches = [searched(describe(c, s)) for c in channels for s in (14, 28)]
    problems = {
        name: {evaluation.problem_of(describe(c, s).key) for c in channels}
        for name, s in (("a", 14), ("b", 28))
    }
    (found,) = evaluation.evaluate(searches, problems)
    # The default and one rival of four are always measured: half the time.
    assert found.predicted.fifth == pytest.approx(1.0)
    assert found.predicted.fifth_spent == pytest.approx(0.5)
    assert found.predicted.spent == pytest.approx(0.5)
    # The library's order comes to `many` third, which is the best of half the convolutions.
    assert found.library.fifth > 1.5
    assert found.library.spent == pytest.approx(0.75)


def test_one_model_alone_cannot_be_left_out():
    problems = {"a": {evaluation.problem_of(describe(8).key)}}
    assert evaluation.evaluate([searched(describe(8))], problems) == []


def test_the_command_reads_databases(tmp_path):
    chosen = [p for name in ("resnet50", "unet") for p in problem.load_set(name)]
    searches = [searched(descriptor) for descriptor in candidates.descriptors_of(chosen)]
    records = [Record(search.key, HERE, "default", created=1) for search in searches]
    database.merge_into(tmp_path / "a.h5", records[::2], searches=searches[::2])
    database.merge_into(tmp_path / "b.h5", records[1::2], searches=searches[1::2])
    files = [str(tmp_path / name) for name in ("a.h5", "b.h5")]
    result = CliRunner().invoke(main, ["bench", "cost-model", *files, "--json", str(tmp_path / "out.json")])
    assert result.exit_code == 0, result.output
    assert "left out resnet50" in result.output
    (found,) = json.loads((tmp_path / "out.json").read_text())["evaluations"]
    assert found["predicted"]["nothing"] < found["library"]["nothing"]
    database.merge_into(tmp_path / "none.h5", records[:1])
    result = CliRunner().invoke(main, ["bench", "cost-model", str(tmp_path / "none.h5")])
    assert result.exit_code == 1
    assert "bench record" in result.output


def test_recording_goes_on_where_it_ended(tmp_path):
    path = tmp_path / "recorded.h5"
    command = ["bench", "record", str(path), "baselines", "--batch", "1", "--seconds"]
    result = CliRunner().invoke(main, [*command, "0"])
    assert result.exit_code == 0, result.output
    assert "0 convolutions measured" in result.output
    few = [problem.parse("1,8,8,8,3,1,1")]
    assert candidates.record(path, few, seconds=60) == (3, 0)
    assert candidates.record(path, few, seconds=60) == (0, 0)
    assert len(database.read_searches(path).searches) == 3
