"""QuantizeV2 as TE: a range and a scale for each slice, then the elements, in the order of TensorFlow's CPU kernels.

min_range, max_range --> low, high --> scale (and what else the mode needs), one for each slice
input --> flushed, clamped, scaled, rounded --> codes
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import te, tirx

from ..spec import QuantizeV2
from ..spec.tensor import INTEGER_RANGES
from .computation import Builder, Computation
from .form import ElementwiseForm, rows_of
from .rounding import (
    bound,
    clamp_keeping_nan,
    float32,
    flush_denormal,
    is_nan,
    largest,
    round_half_away,
    round_half_away_to_int32,
    round_half_even,
    smallest,
    unfused,
    within_int32,
)

_LARGEST_FLOAT = 3.4028234663852886e38


#: a quantity of one slice: (operator, the quantities before it by name) -> float32
Quantity = Callable[[QuantizeV2, dict[str, Any]], Any]


@dataclass(frozen=True)
class _Mode:
    """How one mode computes.

    Args:
        quantities: what it derives for each slice from "low" and "high", each from those before it.
        bounds: which quantities are output_min and output_max.
        code: (operator, element, quantities of its slice) -> int32.
    """

    quantities: dict[str, Quantity]
    bounds: tuple[str, str]
    code: Callable[[QuantizeV2, Any, dict[str, Any]], Any]


def quantize_v2(operator: QuantizeV2, known: frozenset[str], form: ElementwiseForm) -> Computation:
    """The TE of QuantizeV2."""
    build, rows = Builder(operator, known), rows_of(operator, form)
    mode = _MODES[operator.mode]
    slices = (operator.tensor("min_range").elements,)
    minimum, maximum = build.raw("min_range"), build.raw("max_range")
    vectors: dict[str, te.Tensor] = {}
    vectors["low"] = te.compute(slices, lambda at: smallest(float32(0), flush_denormal(minimum[at])), name="low")
    vectors["high"] = te.compute(
        slices, lambda at: _high(operator, minimum[at], maximum[at], vectors["low"][at]), name="high"
    )
    for name, quantity in mode.quantities.items():
        vectors[name] = _stage(operator, name, quantity, dict(vectors))
    along = {name: _along(vector, rows) for name, vector in vectors.items()}
    flat = build.raw("input", (operator.input.elements,))

    def element(index: Any) -> Any:
        code = mode.code(operator, flush_denormal(flat[index]), {name: value(index) for name, value in along.items()})
        return code.astype(operator.output_dtype)

    output = te.compute(flat.shape, element, name="output")
    bounds = [(f"output_{end}", vectors[name]) for end, name in zip(("min", "max"), mode.bounds, strict=True)]
    return build.finish([("output", output), *bounds])


def _stage(operator: QuantizeV2, name: str, quantity: Quantity, before: dict[str, te.Tensor]) -> te.Tensor:
    return te.compute(
        before["low"].shape,
        lambda at: quantity(operator, {known: vector[at] for known, vector in before.items()}),
        name=name,
    )


def _along(vector: te.Tensor, rows: Any) -> Callable[[Any], Any]:
    """A quantity of the slices as a function of the flat element's index."""
    if int(vector.shape[0]) == 1:
        return lambda index: vector[0]
    if not rows.spread:
        return lambda index: vector[index // rows.inner % max(1, rows.count)]
    spread = te.compute(
        (rows.segment,), lambda index: vector[index // rows.inner % rows.count], name=f"spread_{vector.op.name}"
    )
    return lambda index: spread[index % rows.segment]


def _high(operator: QuantizeV2, minimum: Any, maximum: Any, low: Any) -> Any:
    """max(0, max(max_range, low + eps)), where a NaN as the second argument is ignored."""

    def widened(upper: Any) -> Any:
        magnitude = largest(float32(1), largest(tirx.abs(flush_denormal(minimum)), tirx.abs(upper)))
        epsilon = unfused(magnitude * float32(operator.ensure_minimum_range))
        return largest(float32(0), largest(upper, flush_denormal(low + epsilon)))

    return bound(flush_denormal(maximum), widened)


def _step(operator: QuantizeV2, at: dict[str, Any]) -> Any:
    """f32(f64(Tmax - Tmin) / f64(f32(high - low)))."""
    bottom, top = INTEGER_RANGES[operator.output_dtype]
    width = (at["high"] - at["low"]).astype("float64")
    return (tirx.const(float(top - bottom), "float64") / width).astype("float32")


def _min_combined_code(operator: QuantizeV2, element: Any, at: dict[str, Any]) -> Any:
    scaled = unfused((clamp_keeping_nan(element, at["low"], at["high"]) - at["low"]) * at["scale"])
    if operator.output_dtype.startswith("u"):
        return _code(operator, scaled + float32(0.5), lambda number: number.astype("int32"))
    shifted = scaled + float32(INTEGER_RANGES[operator.output_dtype][0])
    return _code(operator, shifted, round_half_away_to_int32)


def _min_first_scale(operator: QuantizeV2, at: dict[str, Any]) -> Any:
    return tirx.Select(at["high"] == at["low"], float32(0), _step(operator, at))


def _min_first_offset(operator: QuantizeV2, at: dict[str, Any]) -> Any:
    return round_half_away(unfused(at["low"] * at["scale"])) - float32(INTEGER_RANGES[operator.output_dtype][0])


def _min_first_code(operator: QuantizeV2, element: Any, at: dict[str, Any]) -> Any:
    bottom, top = INTEGER_RANGES[operator.output_dtype]
    # 2^31 - 128 is the largest float32 that int32 holds
    highest = float32(min(top, 2**31 - 128))
    shifted = round_half_away(unfused(element * at["scale"])) - at["offset"]
    clamped = clamp_keeping_nan(shifted, float32(bottom), highest)
    if operator.output_dtype == "int32":
        return within_int32(clamped).astype("int32")  # NaN gives -2^31 here
    return _code(operator, clamped, lambda number: number.astype("int32"))


def _ends(operator: QuantizeV2) -> tuple[Any, Any]:
    """The smallest and the largest code of mode SCALED."""
    minimum, maximum = INTEGER_RANGES[operator.output_dtype]
    return float32(minimum + operator.narrow_range), float32(maximum)


def _scaled_scale(operator: QuantizeV2, at: dict[str, Any]) -> Any:
    bottom, top = _ends(operator)
    return smallest(
        *(
            tirx.Select(code * limit > float32(0), code / limit, float32(_LARGEST_FLOAT))
            for code, limit in ((bottom, at["low"]), (top, at["high"]))
        )
    )


def _scaled_low(operator: QuantizeV2, at: dict[str, Any]) -> Any:
    bottom = _ends(operator)[0]
    if bottom.value == 0:
        # TVM simplifies 0 / scale to 0, but a scale of 0, of an infinite range, gives NaN
        return tirx.Select(at["scale"] == float32(0), float32(float("nan")), float32(0))
    return flush_denormal(bottom / at["scale"])


def _scaled_factor(operator: QuantizeV2, at: dict[str, Any]) -> Any:
    """The scale; NaN where a bound is NaN, which makes every element NaN: the clamp would ignore it."""
    unusable = tirx.Or(is_nan(at["scaled_low"]), is_nan(at["scaled_high"]))
    return tirx.Select(unusable, float32(float("nan")), at["scale"])


def _scaled_code(operator: QuantizeV2, element: Any, at: dict[str, Any]) -> Any:
    scaled = unfused(clamp_keeping_nan(element, at["scaled_low"], at["scaled_high"]) * at["factor"])
    return _code(
        operator, scaled, round_half_even if operator.round_mode == "HALF_TO_EVEN" else round_half_away_to_int32
    )


def _code(operator: QuantizeV2, value: Any, convert: Callable[[Any], Any]) -> Any:
    """The int32 code of a number by `convert`; NaN gives 0, and what int32 does not hold gives -2^31."""
    zero = tirx.const(0, "int32")
    if operator.output_dtype == "int32":
        return bound(value, lambda number: tirx.Select(is_nan(number), zero, convert(within_int32(number))))
    # clamped to a narrow type's range, or NaN: nothing leaves int32
    return bound(value, lambda number: convert(tirx.Select(is_nan(number), float32(0), number)))


_MODES = {
    "MIN_COMBINED": _Mode({"scale": _step}, ("low", "high"), _min_combined_code),
    "MIN_FIRST": _Mode({"scale": _min_first_scale, "offset": _min_first_offset}, ("low", "high"), _min_first_code),
    "SCALED": _Mode(
        {
            "scale": _scaled_scale,
            "scaled_low": _scaled_low,
            "scaled_high": lambda operator, at: flush_denormal(_ends(operator)[1] / at["scale"]),
            "factor": _scaled_factor,
        },
        ("scaled_low", "scaled_high"),
        _scaled_code,
    ),
}
