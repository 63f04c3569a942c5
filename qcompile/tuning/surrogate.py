"""A model of times that were not measured: a Gaussian process over the points of a space."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.float64]

#: reach of a measurement, in units of an axis; the likeliest is taken
_LENGTHS = (0.15, 0.3, 0.6, 1.2)
#: what repeated measurements differ by, in standard deviations of all
_NOISE = 0.05


def expected_improvements(known: Numbers, values: Numbers, unknown: Numbers) -> tuple[Numbers, Numbers]:
    """How much better than the best value each unknown point may be, and its expected value.

    Args:
        known: float64[n, axes], n >= 2: points with values.
        values: float64[n]: smaller is better.
        unknown: float64[m, axes].

    Returns:
        (expected improvements in standard deviations, expected values): float64[m] each.
    """
    mean, deviation = float(values.mean()), float(values.std()) or 1.0
    standard = (values - mean) / deviation
    fits = [_Fit(known, standard, length) for length in _LENGTHS]
    fit = max(fits, key=lambda entry: entry.likelihood)
    expected, uncertainty = fit.predict(unknown)
    gap = standard.min() - expected
    ratio = gap / uncertainty
    gains = gap * _normal_distribution(ratio) + uncertainty * np.exp(-(ratio**2) / 2) / math.sqrt(2 * math.pi)
    return gains, expected * deviation + mean


class _Fit:
    """A process with a Matérn covariance (nu = 5/2) of one length, fitted to values of mean 0 and deviation 1."""

    def __init__(self, known: Numbers, values: Numbers, length: float):
        self._known, self._length = known, length
        covariance = _covariance(known, known, length)
        covariance[np.diag_indices_from(covariance)] += _NOISE**2
        self._root = np.linalg.cholesky(covariance)
        half = np.linalg.solve(self._root, values)
        self._weights = np.linalg.solve(self._root.T, half)
        self.likelihood = -0.5 * float(half @ half) - float(np.log(np.diag(self._root)).sum())

    def predict(self, points: Numbers) -> tuple[Numbers, Numbers]:
        """(means, standard deviations)."""
        covariance = _covariance(self._known, points, self._length)
        variance = 1 + _NOISE**2 - (np.linalg.solve(self._root, covariance) ** 2).sum(axis=0)
        return covariance.T @ self._weights, np.sqrt(np.maximum(variance, 1e-9))


def _covariance(first: Numbers, second: Numbers, length: float) -> Numbers:
    squares = np.zeros((len(first), len(second)))
    for axis in range(first.shape[1]):
        squares += (first[:, axis, None] - second[None, :, axis]) ** 2
    distance = np.sqrt(5 * squares) / length
    return np.asarray((1 + distance + distance**2 / 3) * np.exp(-distance))


def _normal_distribution(values: Numbers) -> Numbers:
    """The cumulative distribution of the standard normal."""
    return np.array([0.5 * math.erfc(-value / math.sqrt(2)) for value in values])
