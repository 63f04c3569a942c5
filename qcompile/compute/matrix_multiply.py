"""Matrix product as TE: centre, accumulate, requantize, with the columns in blocks of lanes.

a --centred--> int16, zero point subtracted ------------+
b --packed_filter--> int16, zero point subtracted -------+--accumulate--> int32
int32 --requantize (bias, multiplier, zero point)--> codes in blocks --output--> rows of columns
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import te, tirx

from ..spec import MatrixMultiply, MatrixMultiplyInteger
from .blocked import (
    Place,
    as_uint8,
    centred_filter,
    channel_of_lane,
    joined,
    packed_multiplier,
    place_of_depth,
    raw_filter,
    select,
)
from .computation import Builder, Computation
from .correction import Indices, Sums, Total, accumulators
from .form import AccumulateForm, ChannelBlocks, channel_blocks
from .rounding import saturated_code


def matrix_multiply(operator: MatrixMultiply, known: frozenset[str], form: AccumulateForm) -> Computation:
    """The TE of QuantizedLinearMatrixMultiply and MatrixMultiplyInteger."""
    build = Builder(operator, known)
    blocks = channel_blocks(operator, form)
    rows = -(-operator.rows // form.tile) * form.tile
    batch_rank = len(operator.batch_shape)
    data = _data(build, operator, rows, form)
    packed = _packed_matrix(build, operator, blocks, form)
    extents = form.depth_shape(operator.depth)
    axes = [te.reduce_axis((0, extent), name=name) for name, extent in zip(("k", "p"), extents, strict=False)]

    def filter_place(indices: Indices) -> Indices:
        return (*_broadcast(indices[:batch_rank], operator.b.shape[:-2]), *indices[-2:])

    def row_place(indices: Indices) -> Indices:
        return (*_broadcast(indices[:batch_rank], operator.a.shape[:-2]), indices[batch_rank])

    def product(*indices: Any) -> Any:
        *batch, b, i = filter_place(indices)
        weight_place = (*batch, b, axes[0], i, *axes[1:])
        left, right = data((*row_place(indices), joined(form, axes))), packed[weight_place]
        return te.sum(left.astype("int32") * right.astype("int32"), axis=axes)

    def row_sums() -> te.Tensor:
        k = te.reduce_axis((0, operator.depth), name="k")
        return te.compute(
            (*operator.a.shape[:-2], rows),
            lambda *row: te.sum(data((*row, k)).astype("int32"), axis=k),
            name="row_sums",
        )

    codes = te.compute((*operator.batch_shape, rows, blocks.blocks, blocks.lanes), product, name="accumulate")
    rank = len(packed.shape)
    sums = Sums(
        codes, "a", "b", operator.depth, blocks, packed,
        packed_axes=(rank - 3, rank - 1) if form.pairs > 1 else (rank - 2,),
        filter_place=filter_place,
        row_of=lambda indices: tirx.min(indices[batch_rank], operator.rows - 1),
        row_sums=row_sums,
        row_place=row_place,
    )  # fmt: skip
    total_of = accumulators(build, form, sums)
    if not isinstance(operator, MatrixMultiplyInteger):
        codes = _requantized_matrix(build, operator, blocks, codes.shape, total_of or codes.__getitem__)
    elif total_of is not None:
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


def _data(build: Builder, operator: MatrixMultiply, rows: int, form: AccumulateForm) -> Callable[[Indices], Any]:
    """(..., row, place in K) -> the centred number, or its code."""
    direct = is_direct(operator, form)
    data = build.raw("a") if direct else _centred_matrix(build, operator, rows, form)

    def element(indices: Indices) -> Any:
        if direct and rows > operator.rows:
            # rows that are rounded up read the last one; nothing of theirs is kept
            indices = (*indices[:-2], tirx.min(indices[-2], operator.rows - 1), indices[-1])
        return data[indices]

    return element


def is_direct(operator: MatrixMultiply, form: AccumulateForm) -> bool:
    """Whether raw data are read where they are."""
    return form.raw_data and operator.a.dtype == "uint8" and operator.depth % form.pairs == 0


def _centred_matrix(build: Builder, operator: MatrixMultiply, rows: int, form: AccumulateForm) -> te.Tensor:
    """int16 [..., M rounded up, K rounded up], zero point subtracted, 0 where there is no input; raw data are uint8."""
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
    """[..., blocks, K, lanes (, pairs)], 0 in the empty places; int16, or codes of one byte."""
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
    dtype = form.filter_dtype(operator.b.dtype)
    if form.raw_weights:
        return raw_filter(build, "b", shape, place_of, code_of, dtype)
    return centred_filter(build, "b", shape, place_of, code_of, operator.columns, dtype)


def _requantized_matrix(build: Builder, operator: Any, blocks: ChannelBlocks, shape: Any, total_of: Total) -> te.Tensor:
    """Codes [..., M, blocks, lanes] of the sums; the multiplier is a matrix where rows have parameters."""
    if operator.a_scale == "per_tensor" and operator.output_scale == "per_tensor":
        multiplier = packed_multiplier(build, blocks, "a_scale", "b_scale")

        def factor(row: Any, b: Any, i: Any) -> Any:
            return multiplier[0, b, i]
    else:
        a_scale, b_scale, output_scale = (
            build.scalar_or_vector(name, "float32") for name in ("a_scale", "b_scale", "output_scale")
        )
        last_row, last_column = operator.rows - 1, operator.columns - 1

        def factor(row: Any, b: Any, i: Any) -> Any:
            # rows and lanes that are rounded up read the last parameter; nothing of theirs is kept
            row = tirx.min(row, last_row)
            column = tirx.min(b * blocks.lanes + i, last_column)
            return a_scale(row) * b_scale(column) / output_scale(row)

    zero_point = build.scalar_or_vector("output_zero_point", "int32")

    def stage(*indices: Any) -> Any:
        row, b, i = indices[-3:]
        own_zero_point = zero_point(tirx.min(row, operator.rows - 1))
        scaled = total_of(indices).astype("float32") * factor(row, b, i)
        return saturated_code(scaled, own_zero_point, operator.output_range, operator.output_dtype)

    return te.compute(shape, stage, name="requantize")
