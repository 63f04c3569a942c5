"""What the values of constants prove about a kernel, beyond which tensors are constant."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..spec import Convolution, MatrixMultiply, Operator
from ..spec.tensor import INTEGER_RANGES


@dataclass(frozen=True)
class Facts:
    """Proven facts; None where nothing is known.

    Args:
        weights: the smallest and the largest filter - zero point of a convolution or matrix product.
    """

    weights: tuple[int, int] | None = None

    @property
    def largest_weight(self) -> int | None:
        """The largest |filter - zero point|."""
        return None if self.weights is None else max(map(abs, self.weights))

    @property
    def weights_fit_int8(self) -> bool:
        """Whether each filter - zero point is proven to be an int8."""
        low, high = INTEGER_RANGES["int8"]
        return self.weights is not None and low <= self.weights[0] and self.weights[1] <= high

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> Facts:
        """Facts of what `asdict` gave, after a way through JSON."""
        return cls(**{name: value if value is None else tuple(value) for name, value in values.items()})

    def weakest(self, other: Facts) -> Facts:
        """What both prove."""
        if self.weights is None or other.weights is None:
            return NOTHING
        return Facts((min(self.weights[0], other.weights[0]), max(self.weights[1], other.weights[1])))


NOTHING = Facts()


def weights_name(operator: Operator) -> str | None:
    """The tensor of weights of a convolution or matrix product; None for other operators."""
    if isinstance(operator, Convolution):
        return "filter"
    return "b" if isinstance(operator, MatrixMultiply) else None


def facts_of(operator: Operator, constants: Mapping[str, Any]) -> Facts:
    """The facts that canonical values of constants prove."""
    name = weights_name(operator)
    if name is None:
        return NOTHING
    zero_name = f"{name}_zero_point"
    has_zero_point = any(tensor.name == zero_name for tensor in operator.tensors)
    if constants.get(name) is None or (has_zero_point and constants.get(zero_name) is None):
        return NOTHING
    weights = np.asarray(constants[name]).astype(np.int32)
    if has_zero_point:
        zero_point = np.asarray(constants[zero_name]).astype(np.int32)
        if zero_point.ndim and name == "filter":
            zero_point = zero_point.reshape(-1, *(1,) * (weights.ndim - 1))
        weights = weights - zero_point
    return Facts((int(weights.min(initial=0)), int(weights.max(initial=0))))
