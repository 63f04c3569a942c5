"""Random tensors for any operator: full ranges, extreme values, ties, and outputs that spread over their range.

`qcompile verify`, the benchmarks and the tests draw from here, so that all of them meet the same hard values.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from ..spec import Convolution, MatrixMultiply, Operator, QuantizeLinear, QuantizeV2, Requantize, TensorRole
from ..spec.tensor import INTEGER_RANGES
from .rounding import Array, along_axis, zero_point

#: Sizes from which on one element in so many is an extreme value.
_EXTREMES_EVERY = 8


def random_values(operator: Operator, rng: np.random.Generator) -> dict[str, Array]:
    """Draws all tensors of `operator.tensors`, in canonical form.

    Codes cover their whole type and include its ends and 0; zero points are often an end of their type; half of the
    draws have scales that are powers of two, with which ties are frequent. The output's scale is chosen from the
    accumulation length and the drawn tensors, so that outputs are neither all saturated nor all equal.

    Args:
        operator: the operator.
        rng: the source of randomness; equal generators give equal tensors.
    """
    power_of_two = bool(rng.integers(2))
    values: dict[str, Array] = {}
    for tensor in operator.tensors:
        if tensor.role == "zero_point":
            values[tensor.name] = _zero_points(tensor, rng)
        elif tensor.role == "scale":
            values[tensor.name] = _scales(tensor, rng, power_of_two)
        elif tensor.role == "bias":
            values[tensor.name] = np.zeros(tensor.shape, np.int32)  # set below, when the sums' size is known
        elif tensor.dtype.startswith("float"):
            values[tensor.name] = np.zeros(tensor.shape, tensor.dtype)  # likewise, when the scale or range is known
        else:
            values[tensor.name] = _codes(tensor, rng)
    if isinstance(operator, (Convolution, MatrixMultiply)):
        _spread_sums(operator, values, rng, power_of_two)
    elif isinstance(operator, Requantize):
        _spread_requantize(operator, values, rng)
    elif isinstance(operator, QuantizeV2):
        _fill_quantize_v2(operator, values, rng)
    elif values["input"].dtype.kind == "f":
        _fill_numbers(operator, values, rng)
    return values


def _codes(tensor: TensorRole, rng: np.random.Generator) -> Array:
    low, high = INTEGER_RANGES[tensor.dtype]
    codes = rng.integers(low, high, tensor.shape, dtype=tensor.dtype, endpoint=True)
    return _scatter(np.asarray(codes, tensor.dtype), np.array([low, high, 0, (low + high + 1) // 2, low, high]), rng)


def _scatter(array: Array, special: Array, rng: np.random.Generator) -> Array:
    """Writes the special values to random places: at most one in eight elements, but at least one value."""
    flat = array.reshape(-1)
    count = min(special.size, max(1, flat.size // _EXTREMES_EVERY))
    if flat.size < _EXTREMES_EVERY and rng.integers(2):
        return array
    places = rng.integers(0, flat.size, count) if flat.size > 2**16 else rng.permutation(flat.size)[:count]
    flat[places] = (special if count == special.size else rng.permutation(special)[:count]).astype(array.dtype)
    return array


def _zero_points(tensor: TensorRole, rng: np.random.Generator) -> Array:
    low, high = INTEGER_RANGES[tensor.dtype]
    drawn = rng.integers(low, high, tensor.shape, endpoint=True)
    ends = np.array([low, high, 0, (low + high + 1) // 2])[rng.integers(0, 4, tensor.shape)]
    return np.where(rng.integers(0, 2, tensor.shape) == 0, drawn, ends).astype(tensor.dtype)


def _scales(tensor: TensorRole, rng: np.random.Generator, power_of_two: bool) -> Array:
    # the scales of one tensor stay within a factor of 8, so that one output scale suits all channels
    exponents = rng.integers(-8, -2, endpoint=True) + rng.integers(-1, 1, tensor.shape, endpoint=True)
    mantissas = np.ones(tensor.shape) if power_of_two else rng.uniform(1, 2, tensor.shape)
    return np.asarray(mantissas * 2.0**exponents).astype(tensor.dtype)


def _spread_sums(
    operator: Convolution | MatrixMultiply, values: dict[str, Array], rng: np.random.Generator, power_of_two: bool
) -> None:
    """Sets bias, output_scale and output_zero_point by the mean and deviation that the sums are expected to have."""
    if "output_scale" not in values:
        return
    first, second = ("input", "filter") if isinstance(operator, Convolution) else ("a", "b")
    low = INTEGER_RANGES[operator.outputs[0].dtype][0]
    for _ in range(16):
        sums = _Sums(operator.accumulation_length, _Moments(values, first), _Moments(values, second))
        if low < 0 or sums.mean > -sums.deviation or "output_zero_point" in values:
            break
        # negative sums would all become the output's 0: look for other zero points
        for tensor in operator.tensors:
            if tensor.role == "zero_point":
                values[tensor.name] = _zero_points(tensor, rng)
    if "bias" in values:
        # as in real layers, the bias takes back most of what the zero points add
        bound = int(2 * sums.deviation)
        bias = rng.integers(-bound, bound, values["bias"].shape, endpoint=True) - int(sums.mean)
        values["bias"] = np.asarray(np.clip(bias, -(2**30), 2**30), np.int32)
        sums.centre()
    product = math.prod(_typical(values[f"{name}_scale"]) for name in (first, second))
    one_sided = abs(sums.mean) > sums.deviation
    codes = rng.uniform(60, 120 if one_sided else 250)
    scale = np.full(values["output_scale"].shape, product * sums.reach / codes)
    scale = scale * rng.uniform(0.7, 1.4, scale.shape)
    if power_of_two:
        scale = 2.0 ** np.round(np.log2(scale))
    values["output_scale"] = np.asarray(scale, np.float32)
    if one_sided and "output_zero_point" in values:
        # outputs that lie wholly on one side of the zero point need room on that side
        tensor = operator.tensor("output_zero_point")
        high = INTEGER_RANGES[tensor.dtype][1]
        ends = (low, low + 60) if sums.mean > 0 else (high - 60, high)
        values[tensor.name] = np.asarray(rng.integers(*ends, tensor.shape, endpoint=True), tensor.dtype)


class _Moments:
    """Mean and mean squares of centred codes, from a sample where there are very many."""

    def __init__(self, values: dict[str, Array], name: str):
        codes = values[name].reshape(-1)[: 2**16].astype(np.float64)
        offsets = values.get(f"{name}_zero_point", np.zeros(())).astype(np.float64)
        means = np.mean(codes) - offsets
        self.mean = float(np.mean(means))
        self.square_of_means = float(np.mean(means**2))
        self.square = float(np.var(codes)) + self.square_of_means


class _Sums:
    """What sums of `length` products of independent codes look like."""

    def __init__(self, length: int, first: _Moments, second: _Moments):
        squares_of_means = first.square_of_means * second.square_of_means
        self.mean = length * first.mean * second.mean
        self.root_mean_square = length * math.sqrt(squares_of_means)
        self.deviation = math.sqrt(length * max(first.square * second.square - squares_of_means, 0)) + 1

    def centre(self) -> None:
        """Takes the mean away from all sums."""
        self.root_mean_square = math.sqrt(max(self.root_mean_square**2 - self.mean**2, 0))
        self.mean = 0.0

    @property
    def reach(self) -> float:
        """A typical large magnitude."""
        return self.root_mean_square + 2 * self.deviation


def _typical(scales: Array) -> float:
    """Geometric mean."""
    return float(np.exp2(np.mean(np.log2(scales))))


def _spread_requantize(operator: Requantize, values: dict[str, Array], rng: np.random.Generator) -> None:
    """Draws the sums so that they fill the output range around the zero point; a fifth are ties where possible."""
    if operator.input.elements == 0:
        return
    typical = float(np.mean(values["input_scale"]) / np.mean(values["output_scale"]))
    # a smaller multiplier has larger sums: both ends of what int32 holds come up
    shrink = 2.0 ** -int(rng.integers(0, 20, endpoint=True))
    values["input_scale"] = (values["input_scale"] * np.float32(shrink / typical)).astype(np.float32)
    if rng.integers(2):
        for name in ("input_scale", "output_scale"):
            values[name] = np.exp2(np.round(np.log2(values[name]))).astype(np.float32)
    codes = rng.uniform(-200, 200, operator.input.shape)
    codes = np.where(rng.uniform(size=operator.input.shape) < 0.2, np.floor(codes) + 0.5, codes)
    sums = np.asarray(np.rint(codes / shrink)).astype(np.int32)
    values["input"] = _scatter(sums, np.array([-(2**31), 2**31 - 1, 0, 1, -1, 2**24 + 1]), rng)


def _fill_numbers(operator: Operator, values: dict[str, Array], rng: np.random.Generator) -> None:
    """The input of QuantizeLinear and DynamicQuantizeLinear: the output's range and some more, ties, NaN."""
    shape = values["input"].shape
    if "scale" not in values:
        width, shift = 2.0 ** rng.uniform(-6, 6), rng.uniform(-1.5, 1.5)
        numbers = np.asarray(width * (rng.uniform(-1, 1, shape) + shift)).astype(np.float32)
        # no infinity: it would leave nothing of all other elements
        special = np.array([0.0, -0.0, np.nan, 1e-40])
    else:
        assert isinstance(operator, QuantizeLinear)
        low, high = INTEGER_RANGES[operator.output_dtype]
        margin = (high - low) / 10
        codes = rng.uniform(low - margin, high + margin, shape)
        codes = codes - along_axis(zero_point(values, "zero_point"), operator.axis, len(shape))
        codes = np.where(rng.uniform(size=shape) < 0.3, np.floor(codes) + 0.5, codes)
        numbers = np.asarray(codes * along_axis(values["scale"].astype(np.float32), operator.axis, len(shape)))
        special = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 3e38, -3e38, 1e-40])
    with np.errstate(over="ignore"):
        numbers = numbers.astype(values["input"].dtype)
        values["input"] = _scatter(numbers, special, rng) if numbers.size >= _EXTREMES_EVERY else numbers


def _fill_quantize_v2(operator: QuantizeV2, values: dict[str, Array], rng: np.random.Generator) -> None:
    """Ranges of all signs, and inputs that fill them and a little more, with their ends, ties and special values."""
    shape = values["min_range"].shape
    width = 2.0 ** rng.integers(-3, 6, shape)
    start = rng.choice([-1.0, -0.5, 0.0, -128 / 127, 0.1], shape) * width
    values["min_range"] = np.asarray(start).astype(np.float32)
    values["max_range"] = np.asarray(start + rng.choice([1.0, 2.0, 255 / 128, 0.001], shape) * width).astype(np.float32)
    if rng.integers(12) == 0:
        values["max_range"] = np.asarray(np.where(rng.integers(2, size=shape), np.inf, values["max_range"]), np.float32)
    if rng.integers(12) == 0:
        values["min_range"] = np.asarray(
            np.where(rng.integers(2, size=shape), -np.inf, values["min_range"]), np.float32
        )
    if operator.mode == "SCALED" and operator.output_dtype.startswith("u"):
        # these codes have no negative side
        values["max_range"] = np.asarray(np.maximum(values["max_range"], width), np.float32)
    low = max(float(np.min(values["min_range"], initial=0)), -1e30)
    high = min(float(np.max(values["max_range"], initial=0)), 1e30)
    reach = 0.2 * (high - low)
    numbers = rng.uniform(low - reach, high + reach, operator.input.shape)
    steps = np.round(numbers * 2) / 2  # halves meet ties with the ranges that are powers of two
    numbers = np.where(rng.uniform(size=operator.input.shape) < 0.2, steps, numbers)
    special = np.array([low, high, 0.0, -0.0, np.nan, np.inf, -np.inf, 1e-40])
    values["input"] = _scatter(np.asarray(numbers).astype(np.float32), special, rng)


def kernel_values(operator: Operator, constants: Mapping[str, Array], rng: np.random.Generator) -> dict[str, Array]:
    """Values of all tensors of an operator: the constants, and random ones for the others."""
    return {**random_values(operator, rng), **constants}
