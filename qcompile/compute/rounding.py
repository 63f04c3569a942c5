"""The float steps that turn a number into a code. Every operation is written out and none may be fused."""

from __future__ import annotations

from typing import Any

from tvm import tirx


def clamp(value: Any, low: Any, high: Any) -> Any:
    """min(max(value, low), high) in this order, which makes NaN `low` (x86's maxps returns its second operand)."""
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
    return (round_half_even(clamp(scaled, low, high)) + zero_point).astype(dtype)
