"""What convolutions and matrix products share: channels in blocks, filters without zero points, requantize."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import te, tirx

from .computation import Builder
from .form import AccumulateForm, ChannelBlocks
from .rounding import float32, saturated_code


def joined(form: AccumulateForm, indices: Any) -> Any:
    """The place along the depth of its axes' indices."""
    return indices[0] if form.pairs == 1 else indices[0] * form.pairs + indices[1]


def place_of_depth(form: AccumulateForm, depth: int, indices: tuple[Any, ...]) -> tuple[Any, list[Any]]:
    """The place along the depth of its axes' indices, and the condition under which it exists."""
    place = joined(form, indices)
    return place, [place < depth] if depth % form.pairs else []


def offset_of(dtype: str) -> int:
    """What is added to codes of a type to make them uint8."""
    return 128 if dtype == "int8" else 0


def as_uint8(code: Any, dtype: str) -> Any:
    """A code, moved to uint8."""
    return (code.astype("int16") + tirx.const(offset_of(dtype), "int16")).astype("uint8")


@dataclass(frozen=True)
class Place:
    """Where an element of a packed filter comes from.

    Args:
        channel: output channel, or column.
        in_channels: conditions under which the lane is not empty.
        in_depth: conditions under which the place along the reduction is not empty.
    """

    channel: Any
    in_channels: list[Any]
    in_depth: list[Any]


def centred_filter(
    build: Builder,
    name: str,
    shape: tuple[int, ...],
    place_of: Callable[..., Place],
    code_of: Callable[..., Any],
    channels: int,
    dtype: str = "int16",
) -> te.Tensor:
    """The packed codes minus their zero point, 0 in the empty places.

    Args:
        build: the computation.
        name: of the tensor of codes.
        shape: of the packed tensor.
        place_of: indices -> their place.
        code_of: indices -> the code, where there is one.
        channels: number of channels.
        dtype: of the result; "int8" where the difference fits.
    """
    zero_name = f"{name}_zero_point"
    zero = tirx.const(0, "int16")

    def centred(*indices: Any) -> Any:
        place = place_of(*indices)
        value = code_of(*indices).astype("int16") - build.scalar_or_vector(zero_name, "int16")(place.channel)
        return select([*place.in_channels, *place.in_depth], value, zero)

    def packed_codes(*indices: Any) -> Any:
        place = place_of(*indices)
        return select([*place.in_channels, *place.in_depth], code_of(*indices).astype("int16"), zero)

    if dtype == "int8":
        return build.derived(
            "narrow_filter", (name, zero_name), "int8", shape, lambda *indices: centred(*indices).astype("int8")
        )
    is_half_known = name in build.known and build.exists(zero_name) and zero_name not in build.known
    if not is_half_known:
        return build.derived("packed_filter", (name, zero_name), "int16", shape, centred)
    # the costly part is folded; nobody keeps the sums of empty lanes
    packed = build.derived("packed_codes", (name,), "int16", shape, packed_codes)
    zero_point = build.scalar_or_vector(zero_name, "int16")

    def shifted(*indices: Any) -> Any:
        place = place_of(*indices)
        return select(place.in_depth, packed[indices] - zero_point(tirx.min(place.channel, channels - 1)), zero)

    return te.compute(shape, shifted, name="packed_filter")


def raw_filter(
    build: Builder,
    name: str,
    shape: tuple[int, ...],
    place_of: Callable[..., Place],
    code_of: Callable[..., Any],
    dtype: str,
) -> te.Tensor:
    """The packed codes, 0 in the empty places: in their own type, or as int8, to which uint8 is moved by -128."""
    own = build.operator.tensor(name).dtype

    def code(*indices: Any) -> Any:
        place, value = place_of(*indices), code_of(*indices)
        if dtype != own:
            value = (value.astype("int16") - tirx.const(offset_of(dtype), "int16")).astype(dtype)
        return select([*place.in_channels, *place.in_depth], value, tirx.const(0, dtype))

    return build.derived("packed_bytes", (name,), dtype, shape, code)


def channel_of_lane(blocks: ChannelBlocks, g: Any, b: Any, i: Any) -> tuple[Any, list[Any]]:
    """The channel of a lane, and the condition under which the lane is not empty."""
    within = b * blocks.lanes + i
    valid = [] if blocks.is_full else [within < blocks.width]
    return g * blocks.width + within, valid


def select(conditions: list[Any], value: Any, otherwise: Any) -> Any:
    """The value where all conditions hold; it is not evaluated elsewhere."""
    return tirx.if_then_else(tirx.all(*conditions), value, otherwise) if conditions else value


def packed_multiplier(build: Builder, blocks: ChannelBlocks, input_scale: str, channel_scale: str) -> te.Tensor:
    """The factors that requantize, float32 [groups, blocks, lanes]; 1 in the empty lanes."""

    def multiplier(g: Any, b: Any, i: Any) -> Any:
        channel, valid = channel_of_lane(blocks, g, b, i)
        one_scale = build.scalar_or_vector(input_scale, "float32")
        other_scale = build.scalar_or_vector(channel_scale, "float32")
        output_scale = build.scalar_or_vector("output_scale", "float32")
        return select(valid, one_scale(0) * other_scale(channel) / output_scale(0), float32(1.0))

    scales = (input_scale, channel_scale, "output_scale")
    return build.derived("multiplier", scales, "float32", blocks.shape, multiplier)


def packed_bias(build: Builder, blocks: ChannelBlocks) -> te.Tensor | None:
    """The bias as int32 [groups, blocks, lanes], 0 in the empty lanes; None where there is none."""
    if not build.exists("bias"):
        return None

    def bias(g: Any, b: Any, i: Any) -> Any:
        channel, valid = channel_of_lane(blocks, g, b, i)
        return select(valid, build.raw("bias")[channel], tirx.const(0, "int32"))

    return build.derived("packed_bias", ("bias",), "int32", blocks.shape, bias)


def requantized_channels(
    build: Builder,
    operator: Any,
    blocks: ChannelBlocks,
    shape: Any,
    total_of: Callable[[tuple[Any, ...]], Any],
    place_of: Callable[[tuple[Any, ...]], tuple[Any, ...]] = lambda indices: indices[-3:],
) -> te.Tensor:
    """Codes of a convolution, from its accumulators; `place_of` maps their indices to (group, block, lane)."""
    multiplier = packed_multiplier(build, blocks, "input_scale", "filter_scale")
    zero_point = build.scalar_or_vector("output_zero_point", "int32")

    def stage(*indices: Any) -> Any:
        scaled = total_of(indices).astype("float32") * multiplier[place_of(indices)]
        return saturated_code(scaled, zero_point(0), operator.output_range, operator.output_dtype)

    return te.compute(shape, stage, name="requantize")
