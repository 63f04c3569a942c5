"""The random tensors that candidates are compiled with, checked on and timed with."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..constants.facts import Facts, weights_name
from ..reference.random_values import random_values
from ..spec import Operator

Array = npt.NDArray[Any]


def drawn_values(operator: Operator, seed: int, number: int, facts: Facts) -> dict[str, Array]:
    """Values of all tensors: whole ranges, so that a kernel that saturates is found out.

    Args:
        operator: the operator.
        seed: equal seeds give equal values.
        number: of the draw.
        facts: what has to hold; weights are limited to the proven range.
    """
    values = dict(random_values(operator, np.random.default_rng([seed, number])))
    name = weights_name(operator)
    if name is None or facts.weights is None:
        return values
    weights = values[name].astype(np.int32)
    zero_point = np.asarray(values.get(f"{name}_zero_point", 0)).astype(np.int32)
    if zero_point.ndim and name == "filter":
        zero_point = zero_point.reshape(-1, *(1,) * (weights.ndim - 1))
    limited = np.clip(weights, zero_point + facts.weights[0], zero_point + facts.weights[1])
    values[name] = limited.astype(values[name].dtype)
    return values
