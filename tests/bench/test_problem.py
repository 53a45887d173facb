"""Problem lines and the built-in sets."""

import pytest

from keras_tunedconv.bench.problem import Problem, load_set, parse, select, set_names


def test_a_line_names_every_dimension():
    problem = parse("8,64,56,256,1,2,1")
    assert problem.x_shape == (8, 56, 56, 64)
    assert problem.kernel_shape == (1, 1, 64, 256)
    assert problem.descriptor().y_dims == (8, 256, 28, 28)


def test_optional_fields_and_pairs():
    problem = parse(
        "2,96,56x28,96,7x1,2x1,96,dilation=1,padding=valid,dtype=float16,layout=channels_first,count=3"
    )
    assert problem.x_shape == (2, 96, 56, 28)
    assert problem.kernel_shape == (7, 1, 1, 96)
    assert problem.stride == (2, 1)
    descriptor = problem.descriptor("backward_filter")
    assert descriptor.groups == 96
    assert (descriptor.x_dtype, descriptor.compute_dtype) == ("float16", "float32")
    assert descriptor.direction == "backward_filter"
    assert problem.count == 3


@pytest.mark.parametrize("name", set_names())
def test_every_line_of_every_set_survives_a_round_trip(name):
    problems = load_set(name)
    assert problems
    for problem in problems:
        assert parse(problem.text) == problem
    assert len({p.text for p in problems}) == len(problems)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("8,64,56,64,3,1", "has the form"),
        ("8,64,56,64,3,1,1,7", "has the form"),
        ("8,64,dtype=float16,56,64,3,1,1", "has the form"),
        ("8,64,56,64,0,1,1", "kernel must be a positive integer"),
        ("-8,64,56,64,3,1,1", "N must be a positive integer"),
        ("8,64,56,64,3,1,3", "divisible by groups"),
        ("8,64,56,64,3,1,1,dtype=int8", "dtype must be one of"),
        ("8,64,56,64,3,1,1,colour=red", "Unknown field 'colour'"),
        ("8,64,3,64,5,1,1,padding=valid", "empty output"),
    ],
)
def test_a_malformed_line_is_refused_with_a_reason(line, said):
    with pytest.raises(ValueError, match=said):
        parse(line)


def test_select_mixes_sets_and_lines_and_replaces_batch_and_dtype():
    problems = select(["baselines", "1,8,9,8,3,1,1,dtype=float64"], batch=4, dtype="bfloat16")
    assert len(problems) == len(load_set("baselines")) + 1
    assert {(p.batch, p.dtype) for p in problems} == {(4, "bfloat16")}


def test_an_unknown_set_lists_those_there_are():
    with pytest.raises(ValueError, match="resnet50"):
        select(["resnet51"])


def test_the_default_text_is_short():
    assert Problem(8, 3, (9, 9), 4, (3, 3)).text == "8,3,9,4,3,1,1"
