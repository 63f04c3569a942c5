"""The space of a search: every rule of the target that applies, with every value that it names."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..backends.interface import Hardware
from ..constants.facts import NOTHING, Facts
from ..errors import NotApplicable
from ..planning.choose import default_knobs, find
from ..records import Point
from ..schedules.rule import load_rule
from ..spec import Operator

#: A larger space is sampled.
MAXIMUM_POINTS = 10_000


@dataclass(frozen=True)
class Candidate:
    """One way to schedule an operator: a rule, its version, and all of its knobs."""

    rule: str
    version: int
    knobs: Mapping[str, int]

    @property
    def point(self) -> Point:
        """As in `Record.point`."""
        return self.rule, self.version, tuple(sorted(self.knobs.items()))


@dataclass(frozen=True)
class Space:
    """The candidates of an operator on a target.

    Args:
        candidates: all of them, each once; the defaults come first.
        default_count: how many candidates are defaults; the first is what is taken without the user's records.
        coordinates: float64[candidates, axes]: where they lie, every axis in 0 to 1; near candidates are alike.
    """

    candidates: Sequence[Candidate]
    default_count: int
    coordinates: npt.NDArray[np.float64]


def space_of(
    operator: Operator,
    hardware: Hardware,
    constants: Collection[str] = frozenset(),
    seed: int = 0,
    facts: Facts = NOTHING,
) -> Space:
    """The space of an operator.

    Args:
        operator: the operator.
        hardware: the target; all of its rules that apply take part.
        constants: names of the tensors that are fixed.
        seed: of the sample, where the space is larger than `MAXIMUM_POINTS`.
        facts: what the values of the constants prove.

    Raises:
        NotApplicable: no rule applies.
    """
    present = find(operator, hardware, constants, facts=facts)
    defaults = [Candidate(present.rule, present.version, present.knobs)]
    others: list[Candidate] = []
    for name in hardware.rules:
        rule = load_rule(name)
        try:
            rule.check(operator, hardware, facts)
        except NotApplicable:
            continue
        _, default = default_knobs(name, hardware)
        defaults.append(Candidate(name, rule.version, default))
        axes = rule.space(operator, hardware)
        others += [Candidate(name, rule.version, {**default, **knobs}) for knobs in _grid(axes, seed)]
    first = {candidate.point: candidate for candidate in defaults}
    distinct = list({**first, **{candidate.point: candidate for candidate in others}}.values())
    return Space(distinct, len(first), coordinates_of(distinct))


def _grid(axes: Mapping[str, Sequence[int]], seed: int) -> list[dict[str, int]]:
    """All combinations, or a sample of them."""
    names, values = list(axes), [sorted(set(own)) for own in axes.values()]
    size = math.prod(map(len, values))
    if size <= MAXIMUM_POINTS:
        return [dict(zip(names, point, strict=True)) for point in itertools.product(*values)]
    generator = random.Random(seed)  # noqa: S311 - a sample, no secret
    sampled = []
    for number in sorted(generator.sample(range(size), MAXIMUM_POINTS)):
        point = {}
        for name, own in zip(names, values, strict=True):
            number, position = divmod(number, len(own))
            point[name] = own[position]
        sampled.append(point)
    return sampled


def coordinates_of(candidates: Sequence[Candidate]) -> npt.NDArray[np.float64]:
    """An axis for each rule and for each knob of each rule, between its least and its greatest value.

    Knobs are sizes: twice as much is one step, so that the axes are logarithmic. What a rule lacks is 0.
    """
    columns = []
    for rule in dict.fromkeys(candidate.rule for candidate in candidates):
        is_own = np.array([candidate.rule == rule for candidate in candidates])
        own = [candidate.knobs for candidate in candidates if candidate.rule == rule]
        columns.append(is_own.astype(np.float64))
        for knob in own[0]:
            values = np.array([knobs[knob] for knobs in own], np.float64)
            steps = np.log2(values - values.min() + 1) if values.min() < 1 else np.log2(values)
            reach = steps.max() - steps.min()
            if reach > 0:
                column = np.zeros(len(candidates))
                column[is_own] = (steps - steps.min()) / reach
                columns.append(column)
    return np.stack(columns, axis=1)
