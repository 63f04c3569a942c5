"""Which indices of an array are wrong, axis by axis, in words that show a lane of a vector or a row of a tile.

An index of an axis is wrong where anything differs at it. The statement about the wrong indices of an axis is the first
of these that is true: every index; one index; a range; all or some of the indices that leave the same remainders modulo
a period, the length of a vector or tile; a list, or its ends.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..spec import Convolution, MatrixMultiply, Operator

#: lanes of vectors of 128 to 512 bits, of int32 and of codes
VECTOR_LENGTHS = (4, 8, 16, 32, 64)
#: characters
MAXIMUM_TEXT = 320
#: tiles and panels have vectors of int32
_INT32_LANES = VECTOR_LENGTHS[:3]
#: what a rule chooses from where the knob is 0
_TILES, _VECTORS = range(2, 8), range(1, 9)
#: numbers in a list
_MAXIMUM_LISTED = 8
#: expected number of periods by chance, above which a period that right indices fit too is not reported
_CHANCE = 0.01

Mask = npt.NDArray[np.bool_]
Indices = npt.NDArray[np.intp]


@dataclass(frozen=True)
class Axes:
    """What the axes of an output are called, and at which distances compiled code repeats itself along them.

    Args:
        names: one for each axis.
        periods: lengths of vectors and tiles.
        joined: the first axis, and the one after the last, of those that code may treat as one.
    """

    names: tuple[str, ...]
    periods: tuple[int, ...] = VECTOR_LENGTHS
    joined: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class _Period:
    """Wrong indices leave these remainders modulo `period`, as `matching` indices of the axis do."""

    period: int
    remainders: tuple[int, ...]
    matching: int


def axes_of(rank: int, operator: Operator | None = None, knobs: Mapping[str, int] | None = None) -> Axes:
    """The axes of an output.

    Args:
        rank: number of its axes.
        operator: that computes it; without one, axes have numbers.
        knobs: of its schedule. "tile" is the number of positions of a tile; "vectors" and "blocks" are numbers of
            vectors of channels; 0 where the rule chooses them.
    """
    periods = {*VECTOR_LENGTHS, *_periods_of_knobs(knobs or {})}
    names, joined = tuple(f"axis {number}" for number in range(rank)), (0, rank)
    if isinstance(operator, MatrixMultiply):
        names, joined = ("outer batch", "batch", "row", "column")[-rank:], (0, 0)
    elif isinstance(operator, Convolution):
        spatial = ("row", "column")[-operator.spatial_rank :]
        names = ("batch", *spatial, "channel") if operator.channels_last else ("batch", "channel", *spatial)
        joined = (names.index(spatial[0]), names.index(spatial[-1]) + 1)
        periods.add(operator.output_channels // operator.group_count)
    return Axes(names, tuple(sorted(periods)), joined)


def _periods_of_knobs(knobs: Mapping[str, int]) -> Iterable[int]:
    if "tile" in knobs:
        yield from [knobs["tile"]] if knobs["tile"] else _TILES
    for name in {"vectors", "blocks"} & set(knobs):
        for count in [knobs[name]] if knobs[name] else _VECTORS:
            yield from (count * lanes for lanes in _INT32_LANES)


def describe_pattern(different: Mask, axes: Axes) -> str:
    """Says for each axis of more than one index which ones are wrong; "" where nothing is, or there is no such axis.

    Args:
        different: bool of any shape, True where an array is wrong.
        axes: of that array.

    Returns:
        At most MAXIMUM_TEXT characters such as "along channel: 5, 21, 37 (all with index % 16 = 5); along row and
        column: every index". Axes with something to say come first.
    """
    if not different.any():
        return ""
    wrong = {
        number: np.flatnonzero(_projected(different, number, number + 1))
        for number, size in enumerate(different.shape)
        if size > 1
    }
    statements = {}
    start, end = axes.joined
    joined = [number for number in wrong if start <= number < end]
    flat = _projected(different, start, end)
    period = _period_of(np.flatnonzero(flat), flat.size, axes.periods) if len(joined) > 1 else None
    if period is not None and period.matching < math.prod(wrong[number].size for number in joined):
        name = _together([axes.names[number] for number in joined])
        statements[f"{name} as one"] = _periodic(np.flatnonzero(flat), period)
        wrong = {number: indices for number, indices in wrong.items() if number not in joined}
    for number, indices in wrong.items():
        size = different.shape[number]
        if indices.size < size:
            statements[axes.names[number]] = _statement(indices, size, axes.periods)
    every = [axes.names[number] for number, indices in wrong.items() if indices.size == different.shape[number]]
    if every:
        statements[_together(every)] = "every index"
    return _shortened([f"along {name}: {statement}" for name, statement in statements.items()])


def _projected(different: Mask, start: int, end: int) -> Mask:
    """Whether anything is wrong at the indices of these axes, which become one."""
    others = tuple(number for number in range(different.ndim) if not start <= number < end)
    return np.asarray(different.any(axis=others)).reshape(-1)


def _statement(wrong: Indices, size: int, periods: Sequence[int]) -> str:
    """What is true of some, but not all, indices 0 to size - 1."""
    first, last = int(wrong[0]), int(wrong[-1])
    if wrong.size == 1:
        return f"only {first}" + (" (the last)" if last == size - 1 else "")
    if last - first == wrong.size - 1:
        end = "first" if first == 0 else "last" if last == size - 1 else ""
        return f"{first} to {last}" + (f" (the {end} {wrong.size})" if end else "")
    period = _period_of(wrong, size, periods)
    if period is not None:
        return _periodic(wrong, period)
    return _listed(wrong) if wrong.size <= _MAXIMUM_LISTED else f"{wrong.size} of {size}, from {first} to {last}"


def _period_of(wrong: Indices, size: int, periods: Sequence[int]) -> _Period | None:
    """The period that fits best, the smallest of several; None where none says anything.

    The fewer right indices leave the remainders of the wrong ones, the better a period fits. Two wrong indices at least
    must leave each of the remainders. Where right indices leave them too, the period must be improbable for n indices
    that are wrong at random: s * (r / p)^n is the expected number of sets of r remainders modulo p that cover them all.
    There are s = C(p, r) such sets, or about p where they are ranges.
    """
    found = []
    for period in sorted(set(periods)):
        if not 2 <= period < size:
            continue
        counts = np.bincount(wrong % period, minlength=period)
        remainders = tuple(np.flatnonzero(counts).tolist())
        if len(remainders) == period or counts[list(remainders)].min() < 2 or _remainders(remainders) is None:
            continue
        matching = sum(len(range(remainder, size, period)) for remainder in remainders)
        sets = period if _is_range(remainders) else math.comb(period, len(remainders))
        chance = sets * (len(remainders) / period) ** wrong.size
        if matching == wrong.size or chance <= _CHANCE:
            found.append(_Period(period, remainders, matching))
    return min(found, key=lambda one: one.matching, default=None)


def _periodic(wrong: Indices, period: _Period) -> str:
    share = "all" if period.matching == wrong.size else f"{wrong.size} of the {period.matching}"
    return f"{_listed(wrong)} ({share} with index % {period.period} {_remainders(period.remainders)})"


def _is_range(remainders: tuple[int, ...]) -> bool:
    return remainders[-1] - remainders[0] == len(remainders) - 1


def _remainders(remainders: tuple[int, ...]) -> str | None:
    """A condition; None where it would be long."""
    if len(remainders) == 1:
        return f"= {remainders[0]}"
    if _is_range(remainders):
        return f"from {remainders[0]} to {remainders[-1]}"
    return f"in {{{', '.join(map(str, remainders))}}}" if len(remainders) <= _MAXIMUM_LISTED else None


def _listed(wrong: Indices) -> str:
    words = [str(index) for index in wrong]
    return ", ".join(words if len(words) <= _MAXIMUM_LISTED else [*words[:3], "...", words[-1]])


def _together(names: list[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _shortened(statements: list[str]) -> str:
    """As many of the statements as there is room for."""
    text = "; ".join(statements)
    while len(text) > MAXIMUM_TEXT:
        statements = statements[:-1]
        text = "; ".join([*statements, "..."])
    return text
