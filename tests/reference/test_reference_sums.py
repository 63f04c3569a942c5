"""The sums of the reference once more, one multiplication at a time in Python's integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import given, settings
from hypothesis import strategies as st

from qcompile.reference import evaluate
from qcompile.spec import ConvolutionInteger, Operator

from ..strategies import convolution_integers, matrix_multiply_integers, operators_with_values


@settings(max_examples=60, deadline=None)
@given(operators_with_values(st.one_of(convolution_integers(), matrix_multiply_integers())))
def test_equals_plain_loops(drawn: tuple[Operator, dict[str, npt.NDArray[Any]]]) -> None:
    operator, values = drawn
    output = evaluate(operator, values)["output"]
    rng = np.random.default_rng(0)
    for _ in range(10):
        index = tuple(int(rng.integers(size)) for size in output.shape)
        plain = plain_convolution if isinstance(operator, ConvolutionInteger) else plain_product
        assert int(output[index]) == plain(operator, values, index)


def zero_points(values: dict[str, npt.NDArray[Any]], name: str, count: int) -> list[int]:
    return [int(value) for value in np.broadcast_to(values.get(name, np.zeros((), np.int64)), (count,))]


def plain_product(operator: Any, values: dict[str, npt.NDArray[Any]], index: tuple[int, ...]) -> int:
    a = np.broadcast_to(values["a"], operator.batch_shape + operator.a.shape[-2:])[index[:-2]]
    b = np.broadcast_to(values["b"], operator.batch_shape + operator.b.shape[-2:])[index[:-2]]
    row, column = index[-2:]
    a_zero = zero_points(values, "a_zero_point", operator.rows)[row]
    b_zero = zero_points(values, "b_zero_point", operator.columns)[column]
    return sum((int(a[row, k]) - a_zero) * (int(b[k, column]) - b_zero) for k in range(operator.depth))


def plain_convolution(operator: Any, values: dict[str, npt.NDArray[Any]], index: tuple[int, ...]) -> int:
    data, filters = values["input"], values["filter"]
    if operator.channels_last:
        data, filters = np.moveaxis(data, -1, 1), np.moveaxis(filters, -1, 1)
        index = (index[0], index[-1], *index[1:-1])
    batch, out, *place = index
    zero = zero_points(values, "input_zero_point", 1)[0]
    filter_zero = zero_points(values, "filter_zero_point", operator.output_channels)[out]
    group = out // (operator.output_channels // operator.group_count)
    total = 0
    for position in np.ndindex(*filters.shape[1:]):
        channel = group * operator.filter_channels + position[0]
        at = tuple(
            start * stride + tap * dilation - before
            for start, stride, tap, dilation, before in zip(
                place, operator.strides, position[1:], operator.dilations, operator.start_padding, strict=True
            )
        )
        if all(0 <= coordinate < size for coordinate, size in zip(at, operator.input_spatial, strict=True)):
            total += (int(data[batch, channel][at]) - zero) * (int(filters[out][position]) - filter_zero)
    return total
