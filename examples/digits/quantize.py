"""Post-training quantization: uint8 activations per tensor, int8 weights per output channel, int32 biases."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float32]
WEIGHT_LIMIT = 127


@dataclass(frozen=True)
class ValueRange:
    """Smallest and largest value seen in a tensor."""

    low: float
    high: float


@dataclass(frozen=True)
class ActivationFormat:
    """Per-tensor uint8 format: real = scale * (quantized - zero_point)."""

    scale: np.float32
    zero_point: np.uint8


@dataclass(frozen=True)
class QuantizedLayer:
    """One convolution or dense layer in integers.

    weight: int8, output channels first; weight_scale: float32 [output channels], zero point 0;
    bias: int32 [output channels] in units of bias_scale, float32 [output channels].
    """

    name: str
    weight: NDArray[np.int8]
    weight_scale: FloatArray
    bias: NDArray[np.int32]
    bias_scale: FloatArray
    input_format: ActivationFormat
    output_format: ActivationFormat


def observe_ranges(runs: Iterable[Mapping[str, FloatArray]]) -> dict[str, ValueRange]:
    """Range of each named activation over all the given runs (min/max calibration)."""
    ranges: dict[str, ValueRange] = {}
    for activations in runs:
        for name, values in activations.items():
            low, high = float(values.min()), float(values.max())
            seen = ranges.get(name, ValueRange(low, high))
            ranges[name] = ValueRange(min(low, seen.low), max(high, seen.high))
    return ranges


def activation_format(observed: ValueRange) -> ActivationFormat:
    """Uint8 format of a range; zero is always exact, and a range without negatives has zero point 0."""
    low, high = min(observed.low, 0.0), max(observed.high, 0.0)
    # A tensor that is zero everywhere has no range; any positive scale represents it exactly.
    scale = np.float32((high - low) / 255) if high > low else np.float32(1)
    zero_point = np.clip(np.rint(-low / float(scale)), 0, 255)
    return ActivationFormat(scale, np.uint8(zero_point))


def quantize_weight(weight: FloatArray) -> tuple[NDArray[np.int8], FloatArray]:
    """Int8 weight in -127..127 of the same shape, and its float32 scale per output channel (axis 0)."""
    rows = weight.reshape(len(weight), -1)
    largest = np.abs(rows).max(axis=1)
    scale = np.where(largest > 0, largest / np.float32(WEIGHT_LIMIT), np.float32(1)).astype(np.float32)
    steps = np.clip(np.rint(rows / scale[:, None]), -WEIGHT_LIMIT, WEIGHT_LIMIT)
    return steps.astype(np.int8).reshape(weight.shape), scale


def quantize_bias(bias: FloatArray, scale: FloatArray) -> NDArray[np.int32]:
    """Int32 bias in units of scale; both are float32 [output channels]."""
    steps = np.rint(bias.astype(np.float64) / scale)
    limits = np.iinfo(np.int32)
    if np.any(steps < limits.min) or np.any(steps > limits.max):
        raise OverflowError("a bias does not fit int32 at its scale: the channel's weights are too small")
    return steps.astype(np.int32)


def quantize_layer(
    name: str,
    weight: FloatArray,
    bias: FloatArray,
    input_format: ActivationFormat,
    output_format: ActivationFormat,
) -> QuantizedLayer:
    """Quantize one layer's float32 weight (output channels first) and bias [output channels]."""
    int_weight, weight_scale = quantize_weight(weight)
    bias_scale = input_format.scale * weight_scale
    int_bias = quantize_bias(bias, bias_scale)
    return QuantizedLayer(name, int_weight, weight_scale, int_bias, bias_scale, input_format, output_format)


def quantize_network(
    parameters: Mapping[str, FloatArray],
    layer_names: Sequence[str],
    ranges: Mapping[str, ValueRange],
    image_name: str,
) -> tuple[QuantizedLayer, ...]:
    """Quantize a chain of layers, in order, from "<layer>.weight" and "<layer>.bias" float32 arrays.

    The ranges hold one entry for the image and one for each layer's output.
    """
    layers: list[QuantizedLayer] = []
    input_format = activation_format(ranges[image_name])
    for name in layer_names:
        output_format = activation_format(ranges[name])
        weight, bias = parameters[f"{name}.weight"], parameters[f"{name}.bias"]
        layers.append(quantize_layer(name, weight, bias, input_format, output_format))
        input_format = output_format
    return tuple(layers)
