"""The float steps that turn a number into a code. Every operation is written out and none may be fused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx

from ..spec.tensor import INTEGER_RANGES


def clamp(value: Any, low: Any, high: Any) -> Any:
    """min(max(value, low), high) in this order, which makes NaN `low`."""
    return tirx.min(tirx.max(value, low), high)


def round_half_even(value: Any) -> Any:
    """float32 -> int32, ties to even. `lowering` chooses the instruction. The value must be within int32."""
    return tirx.nearbyint(value).astype("int32")


def float32(value: float) -> Any:
    """A float32 constant."""
    return tirx.const(value, "float32")


def saturated_code(scaled: Any, zero_point: Any, code_range: tuple[int, int], dtype: str) -> Any:
    """RHE(clamp(scaled, qmin - zero_point, qmax - zero_point)) + zero_point as `dtype`; NaN gives qmin.

    Args:
        scaled: float32.
        zero_point: int32.
        code_range: (qmin, qmax).
        dtype: type of the codes.
    """
    low, high = ((tirx.const(bound, "int32") - zero_point).astype("float32") for bound in code_range)
    code = round_half_even(clamp(scaled, low, high)) + zero_point
    # changes nothing, and lets the code generator narrow vectors with instructions that saturate
    smallest_code, largest_code = (tirx.const(bound, "int32") for bound in INTEGER_RANGES[dtype])
    return clamp(code, smallest_code, largest_code).astype(dtype)


#: Marks a float product that feeds a sum; `lowering` turns it into what keeps the code generator from fusing them.
UNFUSED = "qcompile_unfused"
_SMALLEST_NORMAL = 2.0**-126
_INFINITY_BITS = 0x7F800000


def bound(value: Any, body: Callable[[Any], Any]) -> Any:
    """body(value), where the value is computed once: TVM's passes walk expressions as trees."""
    expression = tirx.convert(value)  # an element of a tensor is no expression yet
    name = tirx.Var("value", str(expression.ty.dtype))
    return tirx.Let(name, expression, body(name))


def unfused(product: Any) -> Any:
    """A float32 product that is rounded by itself, whatever is added to it."""
    return tirx.call_pure_extern("float32", UNFUSED, product)


def is_nan(value: Any) -> Any:
    """Whether a float32 is NaN, by its bits: TVM simplifies value != value to false."""
    return (tirx.reinterpret("int32", value) & tirx.const(0x7FFFFFFF, "int32")) > tirx.const(_INFINITY_BITS, "int32")


def flush_denormal(value: Any) -> Any:
    """A denormal float32 becomes 0."""
    return bound(value, lambda number: tirx.Select(tirx.abs(number) < float32(_SMALLEST_NORMAL), float32(0), number))


def smallest(first: Any, second: Any) -> Any:
    """C++'s std::min: a NaN as the second argument is ignored, as the first one it stays."""
    return bound(first, lambda one: bound(second, lambda other: tirx.Select(other < one, other, one)))


def largest(first: Any, second: Any) -> Any:
    """C++'s std::max: a NaN as the second argument is ignored, as the first one it stays."""
    return bound(first, lambda one: bound(second, lambda other: tirx.Select(one < other, other, one)))


def clamp_keeping_nan(value: Any, low: Any, high: Any) -> Any:
    """max(min(value, high), low); NaN stays NaN."""
    below = bound(value, lambda number: tirx.Select(high < number, high, number))
    return bound(below, lambda number: tirx.Select(number < low, low, number))


def within_int32(value: Any) -> Any:
    """A float32 that int32 holds; all others, NaN too, become -2^31.

    The code generator leaves the conversion of such a number undefined.
    """
    lowest, beyond = float32(-(2.0**31)), float32(2.0**31)
    return bound(value, lambda number: tirx.Select(tirx.And(number >= lowest, number < beyond), number, lowest))


def round_half_away_to_int32(value: Any) -> Any:
    """float32 within int32 -> int32, ties away from zero: trunc(value + h) with h of the value's sign.

    |h| is the largest float32 below 0.5. The sum is rounded to even, which takes a tie to the next integer and nothing
    else; with 0.5 itself, 0.49999997 would become 1.
    """
    sign_bit, below_half = tirx.const(-(2**31), "int32"), tirx.const(0x3EFFFFFF, "int32")

    def rounded(number: Any) -> Any:
        sign = tirx.reinterpret("int32", number) & sign_bit
        return (number + tirx.reinterpret("float32", sign | below_half)).astype("int32")

    return bound(value, rounded)


def round_half_away(value: Any) -> Any:
    """float32 -> the nearest integer as float32, ties away from zero; NaN and infinities stay."""

    def rounded(number: Any) -> Any:
        is_small = tirx.abs(number) < float32(2.0**23)
        inner = round_half_away_to_int32(tirx.Select(is_small, number, float32(0))).astype("float32")
        return tirx.Select(is_small, inner, number)

    return bound(value, rounded)
