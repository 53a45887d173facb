"""Problem after problem until time is up, by a clock that the test turns."""

from keras_tunedconv.bench.peers.run import run
from keras_tunedconv.bench.problem import parse
from keras_tunedconv.core.descriptor import DIRECTIONS

PROBLEMS = [parse("8,64,56,64,3,1,1"), parse("8,3,224,64,7,2,1"), parse("8,64,56,256,1,1,1")]


class Timer:
    """Takes ten seconds for a direction, and one for what it does at a problem's end."""

    def __init__(self):
        self.now, self.log = 100.0, []

    def begin(self, problem):
        self.log.append(problem.text)

    def time(self, row):
        self.now += 10.0
        row.seconds["tuned"] = 1.0

    def end(self):
        self.now += 1.0
        self.log.append("end")


def measure(limit, directions=DIRECTIONS):
    timer, seen = Timer(), []
    rows = run(
        PROBLEMS, directions, timer, seconds_limit=limit, progress=seen.append, clock=lambda: timer.now
    )
    assert seen == rows
    assert [(row.problem, row.direction) for row in rows] == [
        (problem.text, direction) for problem in PROBLEMS for direction in directions
    ]
    return timer, [row.is_measured for row in rows]


def test_everything_is_measured_within_a_long_limit():
    timer, measured = measure(1000.0)
    assert all(measured)
    assert timer.log == [step for problem in PROBLEMS for step in (problem.text, "end")]


def test_rows_that_time_is_up_for_are_there_and_not_measured():
    timer, measured = measure(45.0)
    assert measured == [True] * 5 + [False] * 4
    assert timer.log == [PROBLEMS[0].text, "end", PROBLEMS[1].text, "end"]


def test_a_problem_is_not_begun_when_time_is_up():
    timer, measured = measure(0.0, ("backward_data",))
    assert not any(measured)
    assert timer.log == []
