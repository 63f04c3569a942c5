"""From sums of products of codes to the accumulator: zero points and the bias, taken into account afterwards.

    sum((x - z) (w - v)) + bias = sum(x w) + [bias - z (sum(w) - K v)] - v sum(x)        modulo 2^32

x and z are the codes and the zero point of the data, w and v those of the filter, K is the number of products. Where
an operand is centred before it is multiplied, its zero point here is 0. The bracket does not depend on the data: the
stage "offsets", or a constant of that name.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import te, tirx

from .blocked import offset_of, packed_bias
from .computation import Builder
from .form import AccumulateForm, ChannelBlocks

Indices = tuple[Any, ...]
#: Indices of a tensor of sums -> the sum that belongs there.
Total = Callable[[Indices], Any]


@dataclass(frozen=True)
class Sums:
    """Sums of products, and how they hang together with their operands.

    Args:
        tensor: int32, the sums; the last two axes are blocks of channels and lanes.
        data, weights: names of the operands.
        depth: products of each sum, without those that fill up.
        blocks: the channels.
        packed: the packed filter.
        packed_axes: its axes that are summed over.
        filter_place: indices of a sum -> indices of its channel in what is left of the packed filter.
        row_of: indices of a sum -> its row, where the data's zero point has one for each row.
        row_sums: makes the sums of the data alone.
        row_place: indices of a sum -> indices of its row there.
    """

    tensor: te.Tensor
    data: str
    weights: str
    depth: int
    blocks: ChannelBlocks
    packed: te.Tensor
    packed_axes: tuple[int, ...]
    filter_place: Callable[[Indices], Indices]
    row_of: Callable[[Indices], Any]
    row_sums: Callable[[], te.Tensor]
    row_place: Callable[[Indices], Indices]

    def channel_place(self, filter_place: Indices) -> Indices:
        """Indices in the packed filter without its summed axes -> group, block, lane."""
        return filter_place if self.blocks.groups > 1 else (0, *filter_place[-2:])

    def channel(self, filter_place: Indices) -> Any:
        """The number of a channel; an existing one for an empty lane too."""
        g, b, i = self.channel_place(filter_place)
        within = b * self.blocks.lanes + i
        return g * self.blocks.width + (within if self.blocks.is_full else tirx.min(within, self.blocks.width - 1))


def accumulators(build: Builder, form: AccumulateForm, sums: Sums) -> Total | None:
    """What the sums become; None where nothing is added."""
    terms = [*_data_terms(build, form, sums), *_weights_terms(build, form, sums)]
    if not terms:
        return None

    def total(indices: Indices) -> Any:
        value = sums.tensor[indices]
        for term in terms:
            value = value + term(indices)
        return value

    return total


def _zero_point_of_data(build: Builder, form: AccumulateForm, sums: Sums) -> Callable[[Any], Any] | None:
    """Row -> what raw data are too large by; None where it is 0."""
    offset = offset_of(build.operator.tensor(sums.data).dtype)
    name = f"{sums.data}_zero_point"
    if not form.raw_data or not (build.exists(name) or offset):
        return None
    zero_point = build.scalar_or_vector(name, "int32")
    return lambda row: zero_point(row) + offset


def _zero_point_of_weights(build: Builder, form: AccumulateForm, sums: Sums) -> Callable[[Any], Any] | None:
    """Channel -> what raw weights are too large by; None where it is 0."""
    # uint8 weights that meet raw data were moved to int8
    is_moved = form.raw_data and build.operator.tensor(sums.weights).dtype == "uint8"
    offset = -offset_of("int8") if is_moved else 0
    name = f"{sums.weights}_zero_point"
    if not form.raw_weights or not (build.exists(name) or offset):
        return None
    zero_point = build.scalar_or_vector(name, "int32")
    return lambda channel: zero_point(channel) + offset


def _data_terms(build: Builder, form: AccumulateForm, sums: Sums) -> list[Total]:
    """The bracket: the bias, and the zero point of the data times the sum of the filter."""
    zero_point = _zero_point_of_data(build, form, sums)
    bias = packed_bias(build, sums.blocks)
    bias_terms: list[Total] = []
    if bias is not None:
        bias_terms.append(lambda indices: bias[sums.channel_place(sums.filter_place(indices))])
    if zero_point is None:
        return bias_terms
    weights_zero_point = _zero_point_of_weights(build, form, sums)
    filter_sums = functools.cache(lambda: _filter_sums(build, form, sums))

    def centred_filter_sum(place: Indices) -> Any:
        if weights_zero_point is None:
            return filter_sums()[place]
        return filter_sums()[place] - sums.depth * weights_zero_point(sums.channel(place))

    name = f"{sums.data}_zero_point"
    if build.exists(name) and build.operator.tensor(name).shape != ():
        return [
            *bias_terms,
            lambda indices: -zero_point(sums.row_of(indices)) * centred_filter_sum(sums.filter_place(indices)),
        ]

    def offset(*place: Any) -> Any:
        subtracted = zero_point(0) * centred_filter_sum(place)
        return -subtracted if bias is None else bias[sums.channel_place(place)] - subtracted

    sources = ("bias", name, sums.weights, f"{sums.weights}_zero_point")
    shape = _filter_sums_shape(sums)
    offsets = build.derived("offsets", sources, "int32", shape, offset)
    return [lambda indices: offsets[sums.filter_place(indices)]]


def _filter_sums_shape(sums: Sums) -> tuple[int, ...]:
    return tuple(int(size) for axis, size in enumerate(sums.packed.shape) if axis not in sums.packed_axes)


def _filter_sums(build: Builder, form: AccumulateForm, sums: Sums) -> te.Tensor:
    """int32, the packed filter summed over all but batches and channels."""
    packed = sums.packed
    axes = {axis: te.reduce_axis((0, int(packed.shape[axis])), name=f"r{axis}") for axis in sums.packed_axes}

    def filter_sum(*indices: Any) -> Any:
        left = iter(indices)
        place = tuple(axes[axis] if axis in axes else next(left) for axis in range(len(packed.shape)))
        return te.sum(packed[place].astype("int32"), axis=list(axes.values()))

    sources = (sums.weights,) if form.raw_weights else (sums.weights, f"{sums.weights}_zero_point")
    return build.derived("filter_sums", sources, "int32", _filter_sums_shape(sums), filter_sum)


def _weights_terms(build: Builder, form: AccumulateForm, sums: Sums) -> list[Total]:
    """The zero point of the filter times the sum of the data."""
    zero_point = _zero_point_of_weights(build, form, sums)
    if zero_point is None:
        return []
    row_sums = sums.row_sums()
    return [lambda indices: -zero_point(sums.channel(sums.filter_place(indices))) * row_sums[sums.row_place(indices)]]
