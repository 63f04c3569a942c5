"""The search: which candidate comes next. It knows points and times; neither TVM nor clocks.

First the defaults, so that there is a baseline; then points that lie far from each other; then, in turns, the points
where a model expects the most, and neighbours of the best. Equal questions get equal answers.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from .surrogate import Surrogate

Points = npt.NDArray[np.float64]

#: so many points are spread over the space before the model is asked
_SPREAD = 14
#: one in so many of the later points is a neighbour of the best
_NEIGHBOUR_EVERY = 8
#: the model is fitted to so many points at most
_MODELLED = 120
#: of more open points the model judges a part, which moves on every time, and those near the best
_JUDGED = 600
_NEAREST = 100
#: what a failure counts as, in units of the slowest time
_FAILURE = 1.5


class Search:
    """Proposes points of a finite space, each at most once.

    Args:
        coordinates: float64[points, axes], every axis in 0 to 1.
        default_count: the first so many points are asked for first.
    """

    def __init__(self, coordinates: Points, default_count: int = 1):
        self._coordinates = coordinates
        self._default_count = default_count
        self._is_open = np.ones(len(coordinates), bool)
        self._times: dict[int, float | None] = {}
        self._asked = 0
        self._surrogate: Surrogate | None = None
        self._lengths: Points | None = None

    @property
    def is_exhausted(self) -> bool:
        """Whether every point was asked for, or told."""
        return not self._is_open.any()

    def tell(self, point: int, seconds: float | None) -> None:
        """The time of a point; None where it failed. A point that was not asked for is not asked for any more."""
        self._close(point)
        self._times[point] = seconds

    def ask(self, count: int) -> list[int]:
        """At most `count` new points; fewer where the space is exhausted."""
        points: list[int] = []
        self._surrogate = None
        while len(points) < count and not self.is_exhausted:
            point = self._next()
            self._close(point)
            points.append(point)
        return points

    def _close(self, point: int) -> None:
        self._asked += int(self._is_open[point])
        self._is_open[point] = False

    def _next(self) -> int:
        for point in range(self._default_count):
            if self._is_open[point]:
                return point
        measured = [point for point, seconds in self._times.items() if seconds is not None]
        if self._asked < self._default_count + _SPREAD or len(measured) < 2:
            return self._farthest()
        if self._asked % _NEIGHBOUR_EVERY == 0:
            return self._neighbour()
        return self._most_promising()

    def _farthest(self) -> int:
        """The open point whose nearest closed point is the farthest away."""
        closed = self._coordinates[~self._is_open]
        if not len(closed):
            return 0
        open_points = np.flatnonzero(self._is_open)
        distances = _distances(self._coordinates[open_points], closed).min(axis=1)
        return int(open_points[np.argmax(distances)])

    def _neighbour(self) -> int:
        """The open point that is nearest to the best point."""
        open_points = np.flatnonzero(self._is_open)
        distances = _distances(self._coordinates[open_points], self._coordinates[[self._best()]])[:, 0]
        return int(open_points[np.argmin(distances)])

    def _most_promising(self) -> int:
        """The open point with the largest expected improvement; it is then believed to turn out as expected."""
        if self._surrogate is None:
            self._surrogate = self._fitted()
            self._lengths = self._surrogate.lengths
        open_points = self._judged()
        gains, expected = self._surrogate.expected_improvements(self._coordinates[open_points])
        position = int(np.argmax(gains))
        point = int(open_points[position])
        self._surrogate.believe(self._coordinates[point], float(expected[position]))
        return point

    def _judged(self) -> npt.NDArray[np.intp]:
        """The open points that are looked at."""
        open_points = np.flatnonzero(self._is_open)
        step = -(-len(open_points) // _JUDGED)
        if step <= 1:
            return open_points
        distances = _distances(self._coordinates[open_points], self._coordinates[[self._best()]])[:, 0]
        nearest = open_points[np.argsort(distances, kind="stable")[:_NEAREST]]
        return np.union1d(open_points[self._asked % step :: step], nearest)

    def _best(self) -> int:
        measured = [(seconds, point) for point, seconds in self._times.items() if seconds is not None]
        return min(measured)[1]

    def _fitted(self) -> Surrogate:
        """The model of what is known; of very many points of the best half, and a sample of the others."""
        times = [seconds for seconds in self._times.values() if seconds is not None]
        failure = math.log(max(times) * _FAILURE)
        known = {point: failure if seconds is None else math.log(seconds) for point, seconds in self._times.items()}
        points = sorted(known, key=lambda point: (known[point], point))
        if len(points) > _MODELLED:
            half = _MODELLED // 2
            points = [*points[:half], *points[half :: -(-(len(points) - half) // half)]]
        return Surrogate(self._coordinates[points], np.array([known[point] for point in points]), self._lengths)


def _distances(first: Points, second: Points) -> Points:
    """float64[len(first), len(second)]: sums of the absolute differences."""
    distances = np.zeros((len(first), len(second)))
    for axis in range(first.shape[1]):
        distances += np.abs(first[:, axis, None] - second[None, :, axis])
    return distances
