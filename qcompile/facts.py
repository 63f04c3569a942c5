"""What the values of constants prove about a kernel, beyond which tensors are constant."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .spec import Convolution, MatrixMultiply, Operator


@dataclass(frozen=True)
class Facts:
    """Proven facts; None where nothing is known.

    Args:
        largest_weight: the largest |filter - zero point| of a convolution or matrix product.
    """

    largest_weight: int | None = None

    def weakest(self, other: Facts) -> Facts:
        """What both prove."""
        if self.largest_weight is None or other.largest_weight is None:
            return NOTHING
        return Facts(max(self.largest_weight, other.largest_weight))


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
    return Facts(int(np.abs(weights).max(initial=0)))
