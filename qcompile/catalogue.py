"""The table of operators: what computes each of them. Pipeline, tests, benchmarks, docs and CLI read it."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .spec import (
    ConvolutionInteger,
    DequantizeLinear,
    DynamicQuantizeLinear,
    MatrixMultiplyInteger,
    Operator,
    QuantizedLinearConvolution,
    QuantizedLinearMatrixMultiply,
    QuantizeLinear,
    QuantizeV2,
    Requantize,
    Tensor,
)


@dataclass(frozen=True)
class Entry:
    """One operator.

    Args:
        operator: its class.
        title: a line for people.
        compute: "module:function" under `qcompile.compute` (TVM takes seconds to import).
        sources: where its meaning is defined.
        examples: descriptions to try it with.
    """

    operator: type[Operator]
    title: str
    compute: str
    sources: str
    examples: tuple[Operator, ...]


def compute_function(operator: Operator) -> Callable[..., Any]:
    """The function (operator, known names, form) -> Computation."""
    module, _, function = entry_of(operator).compute.partition(":")
    return getattr(importlib.import_module(f"qcompile.compute.{module}"), function)  # type: ignore[no-any-return]


def entry_of(operator: Operator) -> Entry:
    """The row of an operator."""
    return _BY_CLASS[type(operator)]


def _convolution(shape: tuple[int, ...], filter_shape: tuple[int, ...], dtypes: str, **fields: Any) -> Operator:
    layout = fields.pop("layout", "NCHW")
    codes = {"u": "uint8", "s": "int8"}
    return QuantizedLinearConvolution(
        Tensor(shape, codes[dtypes[0]], layout), Tensor(filter_shape, codes[dtypes[1]], layout), codes[dtypes[2]],
        **fields,
    )  # fmt: skip


_SAME = {"start_padding": (1, 1), "end_padding": (1, 1), "bias": True, "filter_scale": "per_channel"}

CATALOGUE: tuple[Entry, ...] = (
    Entry(
        QuantizedLinearConvolution,
        "quantized convolution, 1-D and 2-D, grouped, depthwise, dilated",
        "convolution:convolution",
        "DirectML QUANTIZED_LINEAR_CONVOLUTION, ONNX QLinearConv",
        (
            _convolution((1, 64, 56, 56), (64, 64, 3, 3), "usu", **_SAME),
            _convolution((1, 56, 56, 64), (64, 3, 3, 64), "usu", layout="NHWC", **_SAME),
            _convolution((1, 112, 112, 32), (32, 3, 3, 1), "sss", layout="NHWC", group_count=32, **_SAME),
            _convolution((1, 3, 224, 224), (32, 3, 3, 3), "uuu", strides=(2, 2), **_SAME),
            _convolution((2, 16, 100), (24, 16, 5), "sus", start_padding=(2,), end_padding=(2,)),
        ),
    ),
    Entry(
        QuantizedLinearMatrixMultiply,
        "quantized matrix product, 2 to 4 axes, with bias",
        "matrix_multiply:matrix_multiply",
        "DirectML QUANTIZED_LINEAR_MATRIX_MULTIPLY, ONNX QLinearMatMul, com.microsoft QGemm",
        (
            QuantizedLinearMatrixMultiply(
                Tensor((128, 256), "uint8"), Tensor((256, 256), "int8"), bias=True, b_scale="per_column"
            ),
            QuantizedLinearMatrixMultiply(Tensor((1, 1024), "int8"), Tensor((1024, 1000), "int8")),
            QuantizedLinearMatrixMultiply(
                Tensor((2, 3, 20, 33), "uint8"), Tensor((3, 33, 17), "uint8"), a_scale="per_row"
            ),
        ),
    ),
    Entry(
        ConvolutionInteger,
        "convolution of codes with int32 results",
        "convolution:convolution",
        "ONNX ConvInteger",
        (ConvolutionInteger(Tensor((1, 16, 28, 28), "uint8"), Tensor((32, 16, 3, 3), "int8")),),
    ),
    Entry(
        MatrixMultiplyInteger,
        "matrix product of codes with int32 results",
        "matrix_multiply:matrix_multiply",
        "ONNX MatMulInteger",
        (MatrixMultiplyInteger(Tensor((64, 128), "int8"), Tensor((128, 96), "int8")),),
    ),
    Entry(
        Requantize,
        "int32 sums to codes",
        "elementwise:requantize",
        "the last stage of QLinearConv",
        (Requantize(Tensor((1, 64, 56, 56), "int32"), input_scale="per_axis"),),
    ),
    Entry(
        QuantizeLinear,
        "float32 to codes",
        "elementwise:quantize_linear",
        "ONNX QuantizeLinear",
        (QuantizeLinear(Tensor((1000, 1000), "float32")), QuantizeLinear(Tensor((8, 50, 7), "float32"), "int8",
                                                                        scale="per_axis")),
    ),
    Entry(
        DequantizeLinear,
        "codes to float32",
        "elementwise:dequantize_linear",
        "ONNX DequantizeLinear",
        (DequantizeLinear(Tensor((1000, 1000), "uint8")), DequantizeLinear(Tensor((64, 30), "int8"), scale="per_axis",
                                                                          axis=0)),
    ),
    Entry(
        DynamicQuantizeLinear,
        "float32 to codes with the range of the data",
        "elementwise:dynamic_quantize_linear",
        "ONNX DynamicQuantizeLinear",
        (DynamicQuantizeLinear(Tensor((100, 333), "float32")),),
    ),
    Entry(
        QuantizeV2,
        "float32 to codes by a given range",
        "quantize_v2:quantize_v2",
        "TensorFlow QuantizeV2",
        (QuantizeV2(Tensor((100, 100), "float32"), mode="SCALED", output_dtype="int8"),),
    ),
)  # fmt: skip

_BY_CLASS = {entry.operator: entry for entry in CATALOGUE}
