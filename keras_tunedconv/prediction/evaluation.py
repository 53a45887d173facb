"""How good the cost model is on models of which it has seen nothing, beside the library's own order.

Every convolution of one model is taken out of the data, in every dtype, direction and batch size, the rest is
learnt, and what the cost model would have run is looked up in what was measured; so for each model in turn.
Nothing is run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from keras_tunedconv.core.descriptor import ConvDescriptor
from keras_tunedconv.core.trials import Search, Trial
from keras_tunedconv.prediction.features import Problem, problem
from keras_tunedconv.prediction.model import CostModel

# Time allowed of what measuring every candidate takes.
FIFTH = 0.2
_SHARES = tuple(round(0.05 * i, 2) for i in range(1, 21))
# The regret that the time to reach it is told of.
TARGET = 1.02


@dataclass(frozen=True)
class Regrets:
    """Times of what was chosen over the best time, over all convolutions of one environment and dtype.

    Args:
        cases: How many convolutions, each in each model that has it.
        nothing: Geometric mean with nothing measured.
        nothing_worst: The largest.
        fifth: Geometric mean when candidates are measured in order for a fifth of the time of all.
        fifth_worst: The largest.
        fifth_spent: Part of the time of all that this took; over a fifth where the default and one rival,
            which are always measured, take longer.
        spent: The same for the least allowance with which the geometric mean is at most `TARGET`.
    """

    cases: int
    nothing: float
    nothing_worst: float
    fifth: float
    fifth_worst: float
    fifth_spent: float
    spent: float


@dataclass(frozen=True)
class Evaluation:
    """Both orders on the same convolutions.

    Args:
        environment: Text of the device and the library.
        dtype: Dtype of the inputs.
        models: Regret with nothing measured of each model: the cost model's and the library's.
        predicted: The cost model's order.
        library: The library's own order.
    """

    environment: str
    dtype: str
    models: dict[str, tuple[float, float]]
    predicted: Regrets
    library: Regrets


def evaluate(searches: Iterable[Search], models: dict[str, set[Problem]]) -> list[Evaluation]:
    """Leave out one model at a time.

    Args:
        searches: Recorded searches, complete ones for the figures to mean what they say.
        models: For each model its convolutions, as `problem_of` names them.

    Returns:
        An evaluation for each environment and dtype that has convolutions of at least two models.
    """
    groups: dict[tuple[str, str], list[Search]] = {}
    of_environment: dict[str, list[Search]] = {}
    for search in searches:
        if search.trials and search.trials[0].usable:
            dtype = ConvDescriptor.from_key(search.key).x_dtype
            groups.setdefault((search.environment, dtype), []).append(search)
            of_environment.setdefault(search.environment, []).append(search)

    @cache
    def without(environment: str, name: str) -> CostModel:
        rest = of_environment[environment]
        return CostModel(search for search in rest if problem_of(search.key) not in models[name])

    found = []
    for (environment, dtype), group in sorted(groups.items()):
        members = {
            name: [search for search in group if problem_of(search.key) in problems]
            for name, problems in models.items()
        }
        members = {name: of_model for name, of_model in members.items() if of_model}
        if len(members) > 1:
            learnt = {name: without(environment, name) for name in members}
            found.append(_evaluate(environment, dtype, members, learnt))
    return found


def problem_of(key: str) -> Problem:
    """What a convolution has in common with the same layer at another batch size, dtype or direction."""
    return problem(ConvDescriptor.from_key(key))


def _evaluate(
    environment: str, dtype: str, members: dict[str, list[Search]], learnt: dict[str, CostModel]
) -> Evaluation:
    predicted: list[tuple[Search, list[Trial]]] = []
    library: list[tuple[Search, list[Trial]]] = []
    by_model = {}
    for name, of_model in members.items():
        model = learnt[name]
        here = [(search, _predicted_order(model, search)) for search in of_model]
        own = [(search, _library_order(search)) for search in of_model]
        by_model[name] = (_mean(_first(here)), _mean(_first(own)))
        predicted += here
        library += own
    return Evaluation(environment, dtype, by_model, _regrets(predicted), _regrets(library))


def _library_order(search: Search) -> list[Trial]:
    return [trial for trial in search.trials if trial.usable]


def _predicted_order(model: CostModel, search: Search) -> list[Trial]:
    trials = {trial.algorithm: trial for trial in search.trials}
    names = model.order(ConvDescriptor.from_key(search.key), search.environment, list(trials))
    return [trials[name] for name in names if trials[name].usable]


def _best(search: Search) -> float:
    return min(trial.seconds for trial in search.trials if trial.usable)


def _first(orders: Sequence[tuple[Search, list[Trial]]]) -> list[float]:
    return [order[0].seconds / _best(search) for search, order in orders]


def _within(orders: Sequence[tuple[Search, list[Trial]]], share: float) -> tuple[list[float], float]:
    """Regrets when a share of each convolution's time is allowed, and the part of the time of all it took."""
    measured = [_measured(search, order, share) for search, order in orders]
    regrets = [best / _best(search) for (best, _), (search, _) in zip(measured, orders, strict=True)]
    return regrets, sum(spent for _, spent in measured) / sum(_total(search) for search, _ in orders)


def _total(search: Search) -> float:
    return sum(trial.screen_seconds for trial in search.trials)


def _measured(search: Search, order: list[Trial], share: float) -> tuple[float, float]:
    """The least time found, and the seconds it took. As the tuner, it measures at least one rival."""
    default = search.trials[0]
    best, spent, rivals = default.seconds, default.screen_seconds, 0
    for trial in order:
        if trial is default:
            continue
        if rivals and spent + trial.screen_seconds > share * _total(search):
            break
        spent += trial.screen_seconds
        best = min(best, trial.seconds)
        rivals += 1
    return best, spent


def _regrets(orders: Sequence[tuple[Search, list[Trial]]]) -> Regrets:
    nothing = _first(orders)
    fifth, fifth_spent = _within(orders, FIFTH)
    curve = (_within(orders, share) for share in _SHARES)
    spent = next((spent for regrets, spent in curve if _mean(regrets) <= TARGET), 1.0)
    return Regrets(
        cases=len(orders),
        nothing=_mean(nothing),
        nothing_worst=max(nothing),
        fifth=_mean(fifth),
        fifth_worst=max(fifth),
        fifth_spent=fifth_spent,
        spent=spent,
    )


def _mean(values: Sequence[float]) -> float:
    return float(np.exp(np.mean(np.log(values))))
