"""Layers as operators with tensors: which types, which layout, and values that look like a trained network's.

Weights are normal and scaled for each output channel to the whole range: the largest has the code 127 or -127, as a
quantizer makes them; u8s7 are weights of seven bits, with 64 or -64. Activations are uniform over all their codes, so
that products that saturate are met. Zero points of activations are neither 0 nor in the middle; uint8 weights have 128,
int8 weights none. The output's scale spreads the sums over the output's range.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from shapes import ConvolutionLayer, Layer, ProductLayer

import qcompile as qc
from qcompile.spec import Operator

Values = dict[str, npt.NDArray[Any]]

#: name -> (type of activations and outputs, type of weights, the largest code of a channel's weights)
TYPES = {
    "u8s8": ("uint8", "int8", 127),
    "u8u8": ("uint8", "uint8", 127),
    "s8s8": ("int8", "int8", 127),
    "u8s7": ("uint8", "int8", 64),
}
LAYOUTS = ("NCHW", "NHWC")
_ZERO_POINTS = {"uint8": (121, 131), "int8": (-7, 3)}  # of inputs, of outputs
_INPUT_SCALE = 0.02


def operator(layer: Layer, types: str, layout: str) -> Operator:
    """The operator of a layer.

    Args:
        layer: its shape.
        types: a key of TYPES.
        layout: of convolutions: "NCHW", or "NHWC" with filters OHWI.
    """
    data, weights, _ = TYPES[types]
    zero_point = "per_tensor" if weights == "uint8" else None
    if isinstance(layer, ProductLayer):
        return qc.QuantizedLinearMatrixMultiply(
            qc.Tensor((layer.rows, layer.depth), data), qc.Tensor((layer.depth, layer.columns), weights),
            b_scale="per_column", b_zero_point=zero_point,
        )  # fmt: skip
    return _convolution(layer, data, weights, zero_point, layout)


def _convolution(
    layer: ConvolutionLayer, data: str, weights: str, zero_point: str | None, layout: str
) -> qc.QuantizedLinearConvolution:
    depth = layer.channels // layer.groups
    if layout == "NHWC":
        shapes = (1, *layer.size, layer.channels), (layer.outputs, *layer.taps, depth)
    else:
        shapes = (1, layer.channels, *layer.size), (layer.outputs, depth, *layer.taps)
    return qc.QuantizedLinearConvolution(
        qc.Tensor(shapes[0], data, layout), qc.Tensor(shapes[1], weights, layout), bias=True, strides=layer.strides,
        start_padding=layer.padding[:2], end_padding=layer.padding[2:], group_count=layer.groups,
        filter_scale="per_channel", filter_zero_point=zero_point,
    )  # fmt: skip


def values(operator: Operator, types: str, seed: int = 0) -> Values:
    """All tensors of an operator that `operator` made of these types."""
    rng = np.random.default_rng(seed)
    is_product = isinstance(operator, qc.QuantizedLinearMatrixMultiply)
    data, weights = ("a", "b") if is_product else ("input", "filter")
    roles = {tensor.name: tensor for tensor in operator.tensors}
    data_role, weights_role = roles[data], roles[weights]
    info = np.iinfo(data_role.dtype)
    # the output channels are the last axis of b and the first of a filter
    codes = _trained(rng, weights_role.shape, axis=-1 if is_product else 0, largest=TYPES[types][2])
    channels = weights_role.shape[-1 if is_product else 0]
    scales = rng.uniform(0.004, 0.008, channels).astype(np.float32)
    length = math.prod(weights_role.shape) // channels
    deviation = math.sqrt(length) * float(np.std(codes)) * (int(info.max) - int(info.min)) / math.sqrt(12)
    input_zero_point, output_zero_point = _ZERO_POINTS[data_role.dtype]
    drawn: dict[str, Any] = {
        data: rng.integers(info.min, info.max, data_role.shape, dtype=data_role.dtype, endpoint=True),
        f"{data}_scale": np.float32(_INPUT_SCALE),
        f"{data}_zero_point": np.asarray(input_zero_point, data_role.dtype),
        weights: codes if weights_role.dtype == "int8" else (codes.astype(np.int16) + 128).astype(np.uint8),
        f"{weights}_scale": scales,
        f"{weights}_zero_point": np.asarray(128, np.uint8),
        "bias": rng.integers(-int(deviation) - 1, int(deviation) + 1, channels, dtype=np.int32, endpoint=True),
        "output_scale": np.float32(_INPUT_SCALE * 0.006 * deviation / 50),
        "output_zero_point": np.asarray(output_zero_point, data_role.dtype),
    }
    return {name: np.asarray(drawn[name]) for name in roles}


def _trained(rng: np.random.Generator, shape: tuple[int, ...], axis: int, largest: int) -> npt.NDArray[np.int8]:
    """Normal codes with this largest magnitude in each channel."""
    numbers = rng.standard_normal(shape, dtype=np.float32)
    others = tuple(position for position in range(len(shape)) if position != axis % len(shape))
    extents = np.max(np.abs(numbers), axis=others, keepdims=True)
    return np.asarray(np.rint(numbers * (largest / extents)), np.int8)
