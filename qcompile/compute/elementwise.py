"""Requantize, QuantizeLinear, DequantizeLinear and DynamicQuantizeLinear as TE over flat tensors.

A parameter per axis is a vector along a tensor of rows: where the elements behind the axis are many, one row has one
parameter; where they are few, the parameters are spread into a vector of whole rows that repeats (its `period`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import te, tirx

from ..spec import DequantizeLinear, DynamicQuantizeLinear, QuantizeLinear, Requantize
from ..spec.tensor import INTEGER_RANGES
from .computation import Builder, Computation
from .form import ElementwiseForm, Rows, rows_of
from .rounding import clamp, float32, round_half_even, saturated_code


def _parameter(
    build: Builder, rows: Rows, name: str, dtype: str, sources: tuple[str, ...], value: Callable[[Any], Any]
) -> Callable[[Any], Any]:
    """A parameter as a function of the flat element's index. `value` gives it at an index of the axis."""
    vectors = [source for source in sources if build.exists(source) and build.operator.tensor(source).shape != ()]
    if not vectors:
        scalar = build.derived(name, sources, dtype, (1,), lambda _: value(0))
        return lambda index: scalar[0]
    if rows.spread:
        spread = build.derived(
            name, sources, dtype, (rows.segment,), lambda index: value(index // rows.inner % rows.count)
        )
        return lambda index: spread[index % rows.segment]
    vector = build.derived(name, sources, dtype, (rows.count,), value)
    return lambda index: vector[index // rows.inner % max(1, rows.count)]


def _raw_parameter(build: Builder, rows: Rows, name: str, dtype: str) -> Callable[[Any], Any]:
    if not build.exists(name):
        return lambda index: tirx.const(0, dtype)
    return _parameter(build, rows, f"spread_{name}", dtype, (name,), lambda at: build.scalar_or_vector(name, dtype)(at))


def requantize(operator: Requantize, known: frozenset[str], form: ElementwiseForm) -> Computation:
    """The TE of Requantize."""
    build, rows = Builder(operator, known), rows_of(operator, form)
    flat = build.raw("input", (operator.input.elements,))

    def quotient(at: Any) -> Any:
        input_scale, output_scale = (build.scalar_or_vector(n, "float32") for n in ("input_scale", "output_scale"))
        return input_scale(at) / output_scale(at)

    multiplier = _parameter(build, rows, "multiplier", "float32", ("input_scale", "output_scale"), quotient)
    zero_point = _raw_parameter(build, rows, "output_zero_point", "int32")
    output = te.compute(
        flat.shape,
        lambda i: saturated_code(
            flat[i].astype("float32") * multiplier(i), zero_point(i), operator.output_range, operator.output_dtype
        ),
        name="output",
    )
    return build.finish([("output", output)])


def quantize_linear(operator: QuantizeLinear, known: frozenset[str], form: ElementwiseForm) -> Computation:
    """The TE of QuantizeLinear: a true division, and the zero point added after rounding."""
    build, rows = Builder(operator, known), rows_of(operator, form)
    flat = build.raw("input", (operator.input.elements,))
    scale = _raw_parameter(build, rows, "scale", operator.input.dtype)
    zero_point = _raw_parameter(build, rows, "zero_point", "int32")
    code_range = INTEGER_RANGES[operator.output_dtype]

    def precise(number: Any) -> Any:
        # a float32 quotient of two float16 numbers, rounded to float16, is their float16 quotient: 24 >= 2 * 11 + 2
        return number.astype(operator.precision).astype("float32")

    def code(i: Any) -> Any:
        quotient = precise(precise(flat[i]) / precise(scale(i)))
        return saturated_code(quotient, zero_point(i), code_range, operator.output_dtype)

    output = te.compute(flat.shape, code, name="output")
    return build.finish([("output", output)])


def dequantize_linear(operator: DequantizeLinear, known: frozenset[str], form: ElementwiseForm) -> Computation:
    """The TE of DequantizeLinear."""
    build, rows = Builder(operator, known), rows_of(operator, form)
    flat = build.raw("input", (operator.input.elements,))
    scale = _raw_parameter(build, rows, "scale", operator.output_dtype)
    zero_point = _raw_parameter(build, rows, "zero_point", "int32")

    def number(i: Any) -> Any:
        difference = (flat[i].astype("int32") - zero_point(i)).astype("float32")
        return (difference * scale(i).astype("float32")).astype(operator.output_dtype)

    output = te.compute(flat.shape, number, name="output")
    return build.finish([("output", output)])


def dynamic_quantize_linear(
    operator: DynamicQuantizeLinear, known: frozenset[str], form: ElementwiseForm
) -> Computation:
    """The TE of DynamicQuantizeLinear: the range in `lanes` partial results and a tail, then the codes."""
    build = Builder(operator, known)
    lanes = form.lanes
    flat = build.raw("input", (operator.input.elements,))
    low = _bound(flat, lanes, "minimum", tirx.min)
    high = _bound(flat, lanes, "maximum", tirx.max)
    width = te.compute((1,), lambda i: (high[i] - low[i]) / float32(255.0), name="width")
    scale = te.compute((1,), lambda i: tirx.Select(width[i] == float32(0.0), float32(1.0), width[i]), name="scale")
    zero_point = te.compute(
        (1,),
        lambda i: round_half_even(clamp((float32(0.0) - low[i]) / scale[i], float32(0.0), float32(255.0))).astype(
            "uint8"
        ),
        name="zero_point",
    )
    output = te.compute(
        flat.shape,
        lambda i: saturated_code(flat[i] / scale[0], zero_point[0].astype("int32"), (0, 255), "uint8"),
        name="output",
    )
    return build.finish([("output", output), ("scale", scale), ("zero_point", zero_point)])


def _bound(flat: te.Tensor, lanes: int, name: str, pick: Callable[..., Any]) -> te.Tensor:
    """[1]: the smallest or largest element and 0. An element that is NaN does not count."""
    elements = int(flat.shape[0])
    vectors = elements // lanes
    reducer = te.comm_reducer(lambda one, other: pick(other, one), lambda dtype: float32(0.0), name=name)
    parts = []
    if vectors:
        row = te.reduce_axis((0, vectors), name="row")
        partial = te.compute((lanes,), lambda i: reducer(flat[row * lanes + i], axis=row), name=f"{name}_of_lanes")
        lane = te.reduce_axis((0, lanes), name="lane")
        parts.append(te.compute((1,), lambda i: reducer(partial[lane], axis=lane), name=f"{name}_of_vectors"))
    if elements % lanes:
        rest = te.reduce_axis((0, elements % lanes), name="rest")
        parts.append(
            te.compute((1,), lambda i: reducer(flat[vectors * lanes + rest], axis=rest), name=f"{name}_of_tail")
        )
    if not parts:
        return te.compute((1,), lambda i: float32(0.0), name=name)
    return te.compute((1,), lambda i: pick(parts[0][i], parts[-1][i]), name=name)
