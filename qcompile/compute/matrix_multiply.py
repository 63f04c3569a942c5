"""Matrix product as TE: centre, accumulate, requantize, with the columns in blocks of lanes.

a --centred--> int16, zero point subtracted ------------+
b --packed_filter--> int16, zero point subtracted -------+--accumulate--> int32
int32 --requantize (bias, multiplier, zero point)--> codes in blocks --output--> rows of columns
"""

from __future__ import annotations

from typing import Any

from tvm import te, tirx

from ..spec import MatrixMultiply, MatrixMultiplyInteger
from .blocked import (
    Place,
    Total,
    as_uint8,
    blocked_bias,
    blocked_parameters,
    centred_filter,
    channel_of_lane,
    joined,
    offset_of,
    place_of_depth,
    select,
)
from .computation import Builder, Computation
from .form import AccumulateForm, ChannelBlocks, channel_blocks
from .rounding import saturated_code


def matrix_multiply(operator: MatrixMultiply, known: frozenset[str], form: AccumulateForm) -> Computation:
    """The TE of QuantizedLinearMatrixMultiply and MatrixMultiplyInteger."""
    build = Builder(operator, known)
    blocks = channel_blocks(operator, form)
    rows = -(-operator.rows // form.tile) * form.tile
    batch_rank = len(operator.batch_shape)
    centred = _centred_matrix(build, operator, rows, form)
    packed = (_packed_codes if form.raw_codes else _packed_matrix)(build, operator, blocks, form)
    extents = form.depth_shape(operator.depth)
    axes = [te.reduce_axis((0, extent), name=name) for name, extent in zip(("k", "p"), extents, strict=False)]

    def product(*indices: Any) -> Any:
        batch, (row, b, i) = indices[:batch_rank], indices[batch_rank:]
        a_index = (*_broadcast(batch, operator.a.shape[:-2]), row, joined(form, axes))
        b_index = (*_broadcast(batch, operator.b.shape[:-2]), b, axes[0], i, *axes[1:])
        return te.sum(centred[a_index].astype("int32") * packed[b_index].astype("int32"), axis=axes)

    codes = te.compute((*operator.batch_shape, rows, blocks.blocks, blocks.lanes), product, name="accumulate")
    total_of: Total = codes.__getitem__
    if form.raw_codes and build.exists("b_zero_point"):
        total_of = _with_zero_point_of_b(build, operator, blocks, centred, codes)
    elif form.raw_data:
        total_of = _with_zero_point_of_a(build, operator, packed, codes)
    if not isinstance(operator, MatrixMultiplyInteger):
        codes = _requantized_matrix(build, operator, blocks, codes.shape, total_of)
    elif total_of != codes.__getitem__:
        codes = te.compute(codes.shape, lambda *indices: total_of(indices), name="shifted")
    if blocks.is_full and rows == operator.rows:
        return build.finish([("output", codes)])

    def element(*indices: Any) -> Any:
        blocked = (*indices[:-1], indices[-1] // form.lanes, indices[-1] % form.lanes)
        return codes[blocked]

    return build.finish([("output", te.compute(operator.output_shape, element, name="output"))])


def _broadcast(batch: tuple[Any, ...], shape: tuple[int, ...]) -> tuple[Any, ...]:
    """The batch indices of an operand with these batch axes, by NumPy's rules."""
    own = batch[len(batch) - len(shape) :]
    return tuple(0 if size == 1 else index for index, size in zip(own, shape, strict=True))


def _centred_matrix(build: Builder, operator: MatrixMultiply, rows: int, form: AccumulateForm) -> te.Tensor:
    """int16 [..., M rounded up, K rounded up], zero point subtracted, 0 where there is no input."""
    batch_rank = len(operator.a.shape) - 2
    raw = build.raw("a")
    zero_point = build.scalar_or_vector("a_zero_point", "int16")
    depth = -(-operator.depth // form.pairs) * form.pairs

    def stage(*indices: Any) -> Any:
        row, k = indices[batch_rank:]
        valid = [] if rows == operator.rows else [row < operator.rows]
        valid += [k < operator.depth] if depth > operator.depth else []
        if form.raw_data:
            dtype = operator.a.dtype
            return select(valid, as_uint8(raw[indices], dtype), tirx.const(0, "uint8"))
        return select(valid, raw[indices].astype("int16") - zero_point(row), tirx.const(0, "int16"))

    return te.compute((*operator.a.shape[:-2], rows, depth), stage, name="centred")


def _packed_matrix(build: Builder, operator: MatrixMultiply, blocks: ChannelBlocks, form: AccumulateForm) -> te.Tensor:
    """int16 [..., blocks, K, lanes (, 2)], the zero point subtracted, 0 in the empty places."""
    batch_rank = len(operator.b.shape) - 2
    depth = form.depth_shape(operator.depth)

    def place_of(*indices: Any) -> Place:
        b, first, i, *rest = indices[batch_rank:]
        column, in_columns = channel_of_lane(blocks, 0, b, i)
        return Place(column, in_columns, place_of_depth(form, operator.depth, (first, *rest))[1])

    def code_of(*indices: Any) -> Any:
        batch, (b, first, i, *rest) = indices[:batch_rank], indices[batch_rank:]
        place = (*batch, joined(form, (first, *rest)), channel_of_lane(blocks, 0, b, i)[0])
        return build.raw("b")[place]

    shape = (*operator.b.shape[:-2], blocks.blocks, depth[0], blocks.lanes, *depth[1:])
    dtype = "int8" if form.raw_data else "int16"
    return centred_filter(build, "b", shape, place_of, code_of, operator.columns, dtype)


def _packed_codes(build: Builder, operator: MatrixMultiply, blocks: ChannelBlocks, form: AccumulateForm) -> te.Tensor:
    """Codes [..., blocks, K, lanes (, 2)] in their own type, 0 in the empty places."""
    depth = form.depth_shape(operator.depth)
    batch_rank = len(operator.b.shape) - 2

    def codes(*indices: Any) -> Any:
        batch, (b, first, i, *rest) = indices[:batch_rank], indices[batch_rank:]
        column, in_columns = channel_of_lane(blocks, 0, b, i)
        k, in_depth = place_of_depth(form, operator.depth, (first, *rest))
        place = (*batch, k, column)
        return select([*in_columns, *in_depth], build.raw("b")[place], tirx.const(0, operator.b.dtype))

    shape = (*operator.b.shape[:-2], blocks.blocks, depth[0], blocks.lanes, *depth[1:])
    return build.derived("packed_bytes", ("b",), operator.b.dtype, shape, codes)


def _with_zero_point_of_a(build: Builder, operator: MatrixMultiply, packed: te.Tensor, sums: te.Tensor) -> Total:
    """Sums of products with raw data -> with centred data: sum((a - z) * b) = sum(a * b) - z * sum(b), modulo 2^32."""
    *batch_shape, blocks, depth, lanes, pairs = (int(size) for size in packed.shape)
    axes = [te.reduce_axis((0, extent), name=name) for name, extent in (("k", depth), ("p", pairs))]

    def filter_sum(*indices: Any) -> Any:
        place = (*indices[:-1], axes[0], indices[-1], axes[1])
        return te.sum(packed[place].astype("int32"), axis=axes)

    shape = (*batch_shape, blocks, lanes)
    filter_sums = build.derived("filter_sums", ("b", "b_zero_point"), "int32", shape, filter_sum)
    zero_point = build.scalar_or_vector("a_zero_point", "int32")
    batch_rank = len(operator.batch_shape)
    offset = offset_of(operator.a.dtype)

    def total(indices: tuple[Any, ...]) -> Any:
        row, b, i = indices[batch_rank:]
        place = (*_broadcast(indices[:batch_rank], operator.b.shape[:-2]), b, i)
        return sums[indices] - (zero_point(tirx.min(row, operator.rows - 1)) + offset) * filter_sums[place]

    return total


def _with_zero_point_of_b(
    build: Builder, operator: MatrixMultiply, blocks: ChannelBlocks, centred: te.Tensor, sums: te.Tensor
) -> Total:
    """Sums of products with codes -> with centred codes: sum(a * (b - z)) = sum(a * b) - z * sum(a), modulo 2^32."""
    zero_point = build.scalar_or_vector("b_zero_point", "int32")
    k = te.reduce_axis((0, int(centred.shape[-1])), name="k")

    def row_sum(*row: Any) -> Any:
        place = (*row, k)
        return te.sum(centred[place].astype("int32"), axis=k)

    row_sums = te.compute(centred.shape[:-1], row_sum, name="row_sums")
    batch_rank = len(operator.batch_shape)

    def total(indices: tuple[Any, ...]) -> Any:
        row, b, i = indices[batch_rank:]
        column = tirx.min(b * blocks.lanes + i, operator.columns - 1)
        place = (*_broadcast(indices[:batch_rank], operator.a.shape[:-2]), row)
        return sums[indices] - zero_point(column) * row_sums[place]

    return total


def _requantized_matrix(build: Builder, operator: Any, blocks: ChannelBlocks, shape: Any, total_of: Total) -> te.Tensor:
    """Codes [..., M, blocks, lanes] of the sums; the multiplier is a matrix where rows have parameters."""
    if operator.a_scale == "per_tensor" and operator.output_scale == "per_tensor":
        multiplier, bias = blocked_parameters(build, blocks, "a_scale", "b_scale")

        def factor(row: Any, b: Any, i: Any) -> Any:
            return multiplier[0, b, i]
    else:
        a_scale, b_scale, output_scale = (
            build.scalar_or_vector(name, "float32") for name in ("a_scale", "b_scale", "output_scale")
        )

        def one_bias(g: Any, b: Any, i: Any) -> Any:
            column, valid = channel_of_lane(blocks, g, b, i)
            return select(valid, build.raw("bias")[column], tirx.const(0, "int32"))

        bias = blocked_bias(build, blocks, one_bias)
        last_row, last_column = operator.rows - 1, operator.columns - 1

        def factor(row: Any, b: Any, i: Any) -> Any:
            # rows and lanes that are rounded up read the last parameter; nothing of theirs is kept
            row = tirx.min(row, last_row)
            column = tirx.min(b * blocks.lanes + i, last_column)
            return a_scale(row) * b_scale(column) / output_scale(row)

    zero_point = build.scalar_or_vector("output_zero_point", "int32")

    def stage(*indices: Any) -> Any:
        row, b, i = indices[-3:]
        total = total_of(indices) if bias is None else total_of(indices) + bias[0, b, i]
        own_zero_point = zero_point(tirx.min(row, operator.rows - 1))
        scaled = total.astype("float32") * factor(row, b, i)
        return saturated_code(scaled, own_zero_point, operator.output_range, operator.output_dtype)

    return te.compute(shape, stage, name="requantize")
