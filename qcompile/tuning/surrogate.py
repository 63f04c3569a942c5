"""A model of times that were not measured: a Gaussian process over the points of a space."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.float64]

#: how far a measurement reaches, in units of an axis; halved and doubled where that is likelier
_FIRST_LENGTH = 0.4
_SHORTEST, _LONGEST = 0.05, 3.2
#: the logarithm of a length is about normally distributed around the first one, with this deviation
_LENGTH_DEVIATION = 1.0
#: what repeated measurements differ by, in standard deviations of all
_NOISE = 0.05


class Surrogate:
    """A process with a Matérn covariance (nu = 5/2), with lengths that suit some known points.

    Args:
        known: float64[n, axes], n >= 2: points with values.
        values: float64[n]: smaller is better.
        lengths: float64[axes]: those that suited fewer points, to start from.
    """

    def __init__(self, known: Numbers, values: Numbers, lengths: Numbers | None = None):
        self._mean, self._deviation = float(values.mean()), float(values.std()) or 1.0
        standard = (values - self._mean) / self._deviation
        differences = (known[:, None, :] - known[None, :, :]) ** 2
        chosen = np.full(known.shape[1], _FIRST_LENGTH) if lengths is None else lengths
        best = _likelihood(differences, standard, chosen)
        for axis in range(known.shape[1]):
            for factor in (0.5, 2.0):
                other = chosen.copy()
                other[axis] = np.clip(other[axis] * factor, _SHORTEST, _LONGEST)
                likelihood = _likelihood(differences, standard, other)
                if likelihood > best:
                    chosen, best = other, likelihood
        self.lengths = chosen
        self._known, self._values = known, standard

    def believe(self, point: Numbers, value: float) -> None:
        """Adds a point that is believed to have a value."""
        self._known = np.concatenate([self._known, point[None]])
        self._values = np.append(self._values, (value - self._mean) / self._deviation)

    def expected_improvements(self, unknown: Numbers) -> tuple[Numbers, Numbers]:
        """How much better than the best value each unknown point may be, and its expected value.

        Args:
            unknown: float64[m, axes].

        Returns:
            (expected improvements in standard deviations, expected values): float64[m] each.
        """
        root = np.linalg.cholesky(_with_noise(_matern(_squares(self._known, self._known, self.lengths))))
        weights = np.linalg.solve(root.T, np.linalg.solve(root, self._values))
        covariance = _matern(_squares(self._known, unknown, self.lengths))
        expected = covariance.T @ weights
        variance = 1 - (np.linalg.solve(root, covariance) ** 2).sum(axis=0)
        uncertainty = np.sqrt(np.maximum(variance, 1e-9))
        gap = self._values.min() - expected
        ratio = gap / uncertainty
        gains = gap * _normal_distribution(ratio) + uncertainty * np.exp(-(ratio**2) / 2) / math.sqrt(2 * math.pi)
        return gains, expected * self._deviation + self._mean


def _likelihood(differences: Numbers, values: Numbers, lengths: Numbers) -> float:
    """The logarithm of how likely values and lengths are, but for a constant."""
    root = np.linalg.cholesky(_with_noise(_matern(differences @ lengths**-2.0)))
    half = np.linalg.solve(root, values)
    prior = float((np.log(lengths / _FIRST_LENGTH) ** 2).sum()) / (2 * _LENGTH_DEVIATION**2)
    return -0.5 * float(half @ half) - float(np.log(np.diag(root)).sum()) - prior


def _squares(first: Numbers, second: Numbers, lengths: Numbers) -> Numbers:
    """float64[len(first), len(second)]: squared distances, every axis in units of its length."""
    squares = np.zeros((len(first), len(second)))
    for axis, length in enumerate(lengths):
        squares += ((first[:, axis, None] - second[None, :, axis]) / length) ** 2
    return squares


def _matern(squares: Numbers) -> Numbers:
    distance = np.sqrt(5 * squares)
    return np.asarray((1 + distance + distance**2 / 3) * np.exp(-distance))


def _with_noise(covariance: Numbers) -> Numbers:
    covariance[np.diag_indices_from(covariance)] += _NOISE**2
    return covariance


def _normal_distribution(values: Numbers) -> Numbers:
    """The cumulative distribution of the standard normal."""
    return np.array([0.5 * math.erfc(-value / math.sqrt(2)) for value in values])
