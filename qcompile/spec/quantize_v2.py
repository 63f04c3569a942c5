"""Description of TensorFlow's QuantizeV2."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ..errors import InvalidTensorError
from .operator import Operator
from .tensor import Tensor, TensorRole
from .values import SMALLEST_NORMAL

OUTPUT_DTYPES = ("int8", "uint8", "int16", "uint16", "int32")
MODES = ("MIN_COMBINED", "MIN_FIRST", "SCALED")
ROUND_MODES = ("HALF_AWAY_FROM_ZERO", "HALF_TO_EVEN")


@dataclass(frozen=True)
class QuantizeV2(Operator):
    """TensorFlow's QuantizeV2: quantizes float32 by the range [min_range, max_range].

    Args:
        input: float32, any shape.
        output_dtype: "int8" (qint8), "uint8" (quint8), "int16", "uint16" or "int32".
        mode: "MIN_COMBINED" (default), "MIN_FIRST" or "SCALED".
        round_mode: "HALF_AWAY_FROM_ZERO" (default) or, with SCALED only, "HALF_TO_EVEN".
        narrow_range: leave out the smallest code (SCALED only has an effect; default False).
        axis: -1 for one range per tensor (default), else the axis whose slices have a range each.
        ensure_minimum_range: least width of the range relative to its larger bound (default 0.01).

    Raises:
        InvalidOperatorError: fields that do not fit together, as in TensorFlow.
    """

    family: ClassVar[str] = "quantizev2"

    input: Tensor
    output_dtype: str = "uint8"
    mode: str = "MIN_COMBINED"
    round_mode: str = "HALF_AWAY_FROM_ZERO"
    narrow_range: bool = False
    axis: int = -1
    ensure_minimum_range: float = 0.01

    def __post_init__(self) -> None:
        self.require_tensor("input", ("float32",))
        self.require_choice("output_dtype", OUTPUT_DTYPES)
        self.require_choice("mode", MODES)
        self.require_choice("round_mode", ROUND_MODES)
        self.require_choice("narrow_range", (True, False))
        self.require(
            self.round_mode == "HALF_AWAY_FROM_ZERO" or self.mode == "SCALED",
            "round_mode HALF_TO_EVEN exists with mode SCALED only.",
            given=f"mode {self.mode}",
        )
        rank = len(self.input.shape)
        self.require_integer("axis", -1, rank - 1, "axis is outside the input.")
        self.require(
            self.axis == -1 or self.mode != "MIN_FIRST" or self.input.shape[self.axis] == 1,
            "mode MIN_FIRST has no ranges per axis.",
            given=f"axis {self.axis}",
            accepted="axis=-1",
        )
        try:
            if isinstance(self.ensure_minimum_range, (bool, str)):
                raise TypeError
            # adding 0 makes -0.0, which has another name, 0.0
            self.replace("ensure_minimum_range", float(self.ensure_minimum_range) + 0.0)
        except (TypeError, ValueError, OverflowError):
            self.require(False, "ensure_minimum_range must be a number.", given=repr(self.ensure_minimum_range))
        self.require(
            math.isfinite(self.ensure_minimum_range) and abs(self.ensure_minimum_range) < 2.0**128,
            "ensure_minimum_range must be finite, in float32 too.",
            given=self.ensure_minimum_range,
        )

    @cached_property
    def tensors(self) -> tuple[TensorRole, ...]:
        """input, min_range, max_range."""
        per_axis = self.axis != -1
        shape = (self.input.shape[self.axis],) if per_axis else ()
        return (
            TensorRole("input", "float32", self.input.shape, "data"),
            TensorRole("min_range", "float32", shape, "range"),
            TensorRole("max_range", "float32", shape, "range"),
        )

    @cached_property
    def outputs(self) -> tuple[TensorRole, ...]:
        """output, output_min, output_max."""
        # TensorFlow runs an axis of length 1 per tensor and returns scalars
        shape = self.tensors[1].shape if self.tensors[1].shape != (1,) else ()
        return (
            TensorRole("output", self.output_dtype, self.input.shape, "output"),
            TensorRole("output_min", "float32", shape, "output"),
            TensorRole("output_max", "float32", shape, "output"),
        )

    def check_values(self, values: Mapping[str, npt.NDArray[Any]]) -> None:
        """Checks that no max_range is below its min_range; denormal numbers count as 0."""
        if "min_range" not in values or "max_range" not in values:
            return
        minimum, maximum = (
            np.where(np.abs(bound) < SMALLEST_NORMAL, np.float32(0), bound)
            for bound in (values["min_range"], values["max_range"])
        )
        bad = np.asarray(maximum < minimum)
        if bad.any():
            raise InvalidTensorError(
                "QuantizeV2: max_range is below min_range.",
                given=f"min_range {minimum[bad].ravel()[0]}, max_range {maximum[bad].ravel()[0]}",
                accepted="max_range >= min_range",
            )

    @property
    def operations(self) -> int:
        """Elements."""
        return self.input.elements
