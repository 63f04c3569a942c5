"""Whether a peer's output is right."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

#: Another requantization differs where a sum lies next to a tie, which is rare; saturation is not.
_ROUNDING_SHARE = 0.01


@dataclass(frozen=True)
class Verdict:
    """A peer's output compared with the exact one.

    Args:
        wrong_share: share of the elements that differ.
        largest_difference: in codes.
    """

    wrong_share: float
    largest_difference: int

    @property
    def word(self) -> str:
        """One of "exact"; "rounding" (few codes are off by one: right sums, another requantization); "wrong"."""
        if self.largest_difference == 0:
            return "exact"
        return "rounding" if self.largest_difference == 1 and self.wrong_share <= _ROUNDING_SHARE else "wrong"


def judge(output: npt.NDArray[Any], expected: npt.NDArray[Any]) -> Verdict:
    """Compares codes; an output of another shape is a mistake of the benchmark.

    Raises:
        ValueError: shapes or types differ.
    """
    if (output.shape, output.dtype) != (expected.shape, expected.dtype):
        raise ValueError(f"the output is {output.dtype}{output.shape} and not {expected.dtype}{expected.shape}")
    differences = np.abs(output.astype(np.int64) - expected.astype(np.int64))
    return Verdict(float(np.mean(differences > 0)), int(np.max(differences, initial=0)))
