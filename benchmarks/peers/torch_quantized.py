"""PyTorch's quantized operators with prepacked weights, by its engines fbgemm and onednn: uint8 x int8."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import numpy as np

from qcompile.spec import Operator, QuantizedLinearConvolution, QuantizedLinearMatrixMultiply

from .interface import Peer, Prepared, Values, channels_first, float_bias

_TYPES = ("uint8", "int8")


def _supports(operator: Operator) -> bool:
    if isinstance(operator, QuantizedLinearConvolution):
        is_symmetric = operator.start_padding == operator.end_padding
        return (operator.input.dtype, operator.filter.dtype) == _TYPES and is_symmetric
    return isinstance(operator, QuantizedLinearMatrixMultiply) and (operator.a.dtype, operator.b.dtype) == _TYPES


def _prepare(engine: str, operator: Any, values: Values, threads: int) -> Prepared:
    import torch

    # the whole module is said to be deprecated; it is what PyTorch has for integer operators
    warnings.filterwarnings("ignore", message=".*deprecated.*", category=UserWarning, module="torch|peers")
    torch.set_num_threads(threads)
    torch.backends.quantized.engine = engine
    is_convolution = isinstance(operator, QuantizedLinearConvolution)
    prepare = _convolution if is_convolution else _linear
    data, function, packed = prepare(operator, values)
    scale, zero_point = float(values["output_scale"]), int(values["output_zero_point"])
    last: list[Any] = [None]

    def call() -> None:
        last[0] = function(data, packed, scale, zero_point)

    def output() -> Any:
        codes = last[0].int_repr()
        if is_convolution and operator.channels_last:
            codes = codes.permute(0, 2, 3, 1)
        return np.ascontiguousarray(codes.numpy())

    return Prepared(call, output)


def _convolution(operator: Any, values: Values) -> tuple[Any, Any, Any]:
    import torch

    layout = operator.input.layout
    order = torch.channels_last if layout == "NHWC" else torch.contiguous_format
    data = _quantized(channels_first(values["input"], layout), values, "input", order)
    weights = _quantized_weights(channels_first(values["filter"], layout), values["filter_scale"])
    packed = torch.ops.quantized.conv2d_prepack(
        weights.contiguous(memory_format=torch.channels_last), _bias(values, "input", "filter"),
        list(operator.strides), list(operator.start_padding), list(operator.dilations), operator.group_count,
    )  # fmt: skip
    return data, torch.ops.quantized.conv2d, packed


def _linear(operator: Any, values: Values) -> tuple[Any, Any, Any]:
    import torch

    data = _quantized(values["a"], values, "a", torch.contiguous_format)
    weights = _quantized_weights(np.ascontiguousarray(values["b"].T), values["b_scale"])
    packed = torch.ops.quantized.linear_prepack(weights, _bias(values, "a", "b"))
    return data, torch.ops.quantized.linear, packed


def _quantized(codes: Any, values: Values, name: str, order: Any) -> Any:
    import torch

    tensor = torch.from_numpy(codes).contiguous(memory_format=order)
    scale, zero_point = float(values[f"{name}_scale"]), int(values[f"{name}_zero_point"])
    return torch._make_per_tensor_quantized_tensor(tensor, scale, zero_point)


def _quantized_weights(codes: Any, scales: Any) -> Any:
    import torch

    factors = torch.from_numpy(np.asarray(scales, np.float64))
    return torch._make_per_channel_quantized_tensor(
        torch.from_numpy(codes), factors, torch.zeros(factors.shape, dtype=torch.int64), 0
    )


def _bias(values: Values, data: str, weights: str) -> Any:
    import torch

    return torch.from_numpy(float_bias(values, data, weights)) if "bias" in values else None


def _peer(engine: str) -> Peer:
    return Peer(
        f"torch-{engine}",
        "torch",
        ("torch",),
        _supports,
        partial(_prepare, engine),
        # cpuinfo, which fbgemm asks; builds that have it in both use the one of libtorch.so. ATen's own kernels and
        # oneDNN have switches.
        objects=("lib/libc10.so", "lib/libtorch.so"),
        avx2_environment={"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"},
        # fbgemm: genU8I8S32FMA of CodeGenHelpers.h is vpmaddubsw; oneDNN: "Nuances of int8 Computations"
        saturates_on_avx2=("u8s8",),
        environment={"OMP_WAIT_POLICY": "PASSIVE"},
    )


TORCH_FBGEMM = _peer("fbgemm")
TORCH_ONEDNN = _peer("onednn")
