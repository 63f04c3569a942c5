"""Kernels write their outputs and nothing beside them, where rows of codes do not fill whole vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import qcompile as qc
from qcompile.reference import evaluate
from qcompile.reference.random_values import random_values
from qcompile.spec import Operator

GUARD, FILLER = 64, 0xA5


def product(rows: int, depth: int, columns: int) -> Operator:
    return qc.QuantizedLinearMatrixMultiply(qc.Tensor((rows, depth), "uint8"), qc.Tensor((depth, columns), "int8"))


def convolution(layout: str, columns: int, channels: int, groups: int = 1, taps: int = 1) -> Operator:
    data = (1, 2, columns, channels) if layout == "NHWC" else (1, channels, 2, columns)
    filters = (channels, 1, taps, channels // groups) if layout == "NHWC" else (channels, channels // groups, 1, taps)
    padding = (0, taps // 2)
    return qc.QuantizedLinearConvolution(
        qc.Tensor(data, "uint8", layout), qc.Tensor(filters, "int8", layout), group_count=groups,
        start_padding=padding, end_padding=padding,
    )  # fmt: skip


def convolution_integer(layout: str, groups: int) -> Operator:
    data, filters = ((1, 19, 3, 3), (19, 19 // groups, 1, 1))
    if layout == "NHWC":
        data, filters = ((1, 3, 3, 19), (19, 1, 1, 19 // groups))
    return qc.ConvolutionInteger(
        qc.Tensor(data, "uint8", layout), qc.Tensor(filters, "int8", layout), group_count=groups,
        input_zero_point=None,
    )  # fmt: skip


def single_position(channels: int, groups: int) -> Operator:
    return qc.QuantizedLinearConvolution(
        qc.Tensor((1, 8 * groups, 1, 1), "uint8"), qc.Tensor((channels * groups, 8, 1, 1), "int8"), group_count=groups
    )


# a row ends with a single code, among others, in a vector of 8, 16, 32 and 64
OPERATORS = [
    *(product(rows, 16, columns) for rows in (1, 2, 5) for columns in (1, 7, 17, 31, 33, 65, 97, 129)),
    *(convolution("NHWC", 5, channels) for channels in (1, 3, 17, 33, 49)),
    *(convolution("NHWC", 5, channels, channels, 3) for channels in (1, 3, 17, 33, 49)),
    *(convolution("NCHW", columns, 8, 8, 3) for columns in (5, 15, 17, 33, 65)),
    *(convolution("NCHW", columns, 17) for columns in (3, 17)),
    # a single position: the channels lie side by side
    *(single_position(channels, groups) for channels in (17, 33, 65, 97) for groups in (1, 3)),
    *(qc.MatrixMultiplyInteger(qc.Tensor((2, 4), "uint8"), qc.Tensor((4, columns), "int8")) for columns in (5, 19, 37)),
    *(convolution_integer(layout, groups) for layout in ("NCHW", "NHWC") for groups in (1, 19)),
    *(qc.QuantizeLinear(qc.Tensor((elements,), "float32")) for elements in (1, 17, 65, 129)),
]  # fmt: skip


@pytest.fixture(scope="module")
def bundle(target: str) -> qc.Bundle:
    values = [values_of(operator) for operator in OPERATORS]
    constants = [
        {name: value for name, value in own.items() if name != operator.tensors[0].name}
        for operator, own in zip(OPERATORS, values, strict=True)
    ]
    return qc.compile({str(number): operator for number, operator in enumerate(OPERATORS)}, target,
                      {str(number): own for number, own in enumerate(constants)}).emulated()  # fmt: skip


def values_of(operator: Operator) -> dict[str, Any]:
    return dict(random_values(operator, np.random.default_rng(5)))


def test_nothing_is_written_beside_the_output(bundle: qc.Bundle, target: str) -> None:
    for number, operator in enumerate(OPERATORS):
        (output,) = operator.outputs
        data = operator.tensors[0]
        values = values_of(operator)
        size = int(np.prod(output.shape)) * np.dtype(output.dtype).itemsize
        memory = np.full(size + 2 * GUARD, FILLER, np.uint8)
        inside = memory[GUARD:-GUARD].view(output.dtype).reshape(output.shape)
        bundle[str(number)].on(target)(out=inside, **{data.name: values[data.name]})
        assert np.array_equal(inside, evaluate(operator, values)["output"]), operator.name
        assert (memory[:GUARD] == FILLER).all(), operator.name
        assert (memory[-GUARD:] == FILLER).all(), operator.name
