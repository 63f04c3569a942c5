"""The search proposes every point once, in the same order every time, and finds the best soon."""

from __future__ import annotations

import itertools
import math
import random
import statistics
from collections.abc import Callable, Sequence

import numpy as np
import pytest

import qcompile as qc
from qcompile.backends import targets
from qcompile.planning import find
from qcompile.schedules import cpu_plain
from qcompile.tuning import space as spaces
from qcompile.tuning.search import Search
from qcompile.tuning.space import Candidate, coordinates_of, space_of
from qcompile.tuning.surrogate import Surrogate

Time = Callable[[dict[str, int]], float]


def grid(**axes: Sequence[int]) -> list[dict[str, int]]:
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


def valley(knobs: dict[str, int]) -> float:
    return 1 + 0.1 * (math.log2(knobs["a"]) - 4) ** 2 + 0.1 * (knobs["b"] - 3) ** 2 + 0.3 * knobs["c"]


VALLEY = grid(a=[1, 2, 4, 8, 16, 32, 64], b=range(1, 13), c=[0, 1, 2])


def search_of(points: Sequence[dict[str, int]], defaults: int = 1) -> Search:
    return Search(coordinates_of([Candidate("rule", 1, knobs) for knobs in points]), defaults)


def trials_until(points: list[dict[str, int]], time: Time, near: float, batch: int = 4) -> int:
    search = search_of(points)
    limit = near * min(map(time, points))
    tried = 0
    while asked := search.ask(batch):
        for point in asked:
            tried += 1
            search.tell(point, time(points[point]))
            if time(points[point]) <= limit:
                return tried
    raise AssertionError("the best point was never asked for")


def all_asked(search: Search, time: Callable[[int], float | None], batch: int = 3) -> list[int]:
    asked = []
    while points := search.ask(batch):
        for point in points:
            search.tell(point, time(point))
        asked += points
    return asked


@pytest.mark.parametrize("batch", [1, 4, 7, 1000])
def test_every_point_is_asked_for_once(batch: int) -> None:
    points = grid(a=[1, 2, 4], b=range(9))
    search = search_of(points)
    assert not search.is_exhausted
    assert sorted(all_asked(search, lambda point: 1.0 + point, batch)) == list(range(27))
    assert search.is_exhausted
    assert search.ask(1) == []


@pytest.mark.parametrize("size", [1, 2, 3])
def test_small_spaces(size: int) -> None:
    assert sorted(all_asked(search_of(grid(a=range(size))), lambda point: 1.0)) == list(range(size))


def test_the_defaults_come_first() -> None:
    assert search_of(VALLEY, 3).ask(3) == [0, 1, 2]
    assert search_of(VALLEY, 1).ask(1) == [0]


def test_equal_searches_are_equal() -> None:
    def time(point: int) -> float:
        return valley(VALLEY[point])

    assert all_asked(search_of(VALLEY[:120]), time) == all_asked(search_of(VALLEY[:120]), time)


def test_what_is_told_is_not_asked_for() -> None:
    points = grid(a=range(20))
    search = search_of(points)
    for point in range(0, 20, 2):
        search.tell(point, 1.0 + point)
    assert sorted(all_asked(search, lambda point: 1.0 + point)) == list(range(1, 20, 2))


def test_failures_everywhere() -> None:
    points = grid(a=range(40))
    assert sorted(all_asked(search_of(points), lambda point: None)) == list(range(40))


def test_equal_times_everywhere() -> None:
    points = grid(a=range(40))
    assert sorted(all_asked(search_of(points), lambda point: 1.0)) == list(range(40))


def test_a_spread_start() -> None:
    """The first points reach the ends of every axis."""
    search = search_of(VALLEY)
    knobs = [VALLEY[point] for point in search.ask(12)]
    for name in ("a", "b", "c"):
        own = {entry[name] for entry in knobs}
        assert {min(entry[name] for entry in VALLEY), max(entry[name] for entry in VALLEY)} <= own


def shuffled(points: list[dict[str, int]], seed: int) -> list[dict[str, int]]:
    return random.Random(seed).sample(points, len(points))


def test_it_is_much_better_than_chance() -> None:
    """Of 252 points 1 is near the best: by chance it takes 126 trials."""
    needed = [trials_until(shuffled(VALLEY, seed), valley, 1.02) for seed in range(5)]
    assert statistics.mean(needed) < 30
    assert max(needed) < 45


def test_a_region_of_failures_is_avoided() -> None:
    """Half of the space fails; the search turns to the other half."""
    points = shuffled(VALLEY, 3)
    search = search_of(points)
    asked = []
    for _ in range(15):
        for point in search.ask(4):
            knobs = points[point]
            search.tell(point, None if knobs["b"] > 6 else valley(knobs))
            asked.append(knobs)
    assert sum(knobs["b"] > 6 for knobs in asked[20:]) < 10
    assert min(valley(knobs) for knobs in asked) < 1.02


def test_noise_does_not_lead_it_astray() -> None:
    generator = random.Random(1)
    points = shuffled(VALLEY, 7)
    search = search_of(points)
    best = math.inf
    for _ in range(12):
        for point in search.ask(4):
            search.tell(point, valley(points[point]) * generator.uniform(0.98, 1.02))
            best = min(best, valley(points[point]))
    assert best < 1.1


def test_many_results_do_not_make_it_slow() -> None:
    points = grid(a=range(40), b=range(40))
    search = search_of(points)
    for point in range(0, 1600, 2):
        search.tell(point, 1.0 + (point % 17))
    assert len(search.ask(2)) == 2


def test_the_model_predicts() -> None:
    known = np.linspace(0, 1, 9)[:, None]
    values = (known[:, 0] - 0.3) ** 2
    gains, expected = Surrogate(known, values).expected_improvements(np.array([[0.31], [0.55], [0.95]]))
    assert expected == pytest.approx([0.0001, 0.0625, 0.4225], abs=0.02)
    assert gains[0] > gains[2]
    assert (gains >= -1e-12).all()


def test_equal_values_are_no_problem_for_the_model() -> None:
    gains, expected = Surrogate(np.array([[0.0], [1.0]]), np.array([2.0, 2.0])).expected_improvements(np.array([[0.5]]))
    assert np.isfinite(gains).all()
    assert expected == pytest.approx([2.0])


def test_what_is_believed_is_not_hoped_for_again() -> None:
    surrogate = Surrogate(np.array([[0.0], [0.2], [1.0]]), np.array([1.0, 0.5, 2.0]))
    place = np.array([0.3])
    before = surrogate.expected_improvements(place[None])[0][0]
    surrogate.believe(place, 0.9)
    assert surrogate.expected_improvements(place[None])[0][0] < before


def test_space_of_an_operator() -> None:
    """All rules take part; the first candidate is what is taken without records."""
    operator = qc.MatrixMultiplyInteger(qc.Tensor((64, 128), "uint8"), qc.Tensor((128, 96), "int8"))
    target = targets.load("x86_64-avx2")
    space = space_of(operator, target)
    default = find(operator, target)
    assert space.candidates[0] == Candidate(default.rule, default.version, default.knobs)
    first = space.candidates[: space.default_count]
    applicable = [rule for rule in target.rules if rule not in dict(default.refused)]
    assert [candidate.rule for candidate in first] == applicable
    assert {candidate.rule for candidate in space.candidates} == set(applicable)
    points = [candidate.point for candidate in space.candidates]
    assert len(set(points)) == len(points)
    own = cpu_plain.space(operator, target)
    plain = [candidate for candidate in space.candidates if candidate.rule == "cpu_plain"]
    assert {candidate.knobs["tile"] for candidate in plain} >= set(own["tile"])
    assert all(set(candidate.knobs) == set(cpu_plain.knobs) for candidate in plain)
    assert space.coordinates.shape[0] == len(points)
    assert space.coordinates.min() == 0
    assert space.coordinates.max() == 1
    assert len(np.unique(space.coordinates, axis=0)) == len(points), "no two points in one place"


def test_a_large_space_is_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spaces, "MAXIMUM_POINTS", 20)
    axes = {"tile": tuple(range(1, 9)), "accumulators": tuple(range(1, 17))}
    monkeypatch.setattr(cpu_plain, "space", lambda operator, target: axes)
    operator = qc.Requantize(qc.Tensor((5,), "int32"))
    space = space_of(operator, targets.load("x86_64"))
    assert 20 <= len(space.candidates) <= 21
    assert space_of(operator, targets.load("x86_64")).candidates == space.candidates
    assert space_of(operator, targets.load("x86_64"), seed=1).candidates != space.candidates
    assert len({candidate.point for candidate in space.candidates}) == len(space.candidates)
    assert len({candidate.knobs["tile"] for candidate in space.candidates}) > 4
