"""Multiply two int16 pairs, add the products: x86's pmaddwd, or vpdpwssd, which adds to the sum too.

    sums[i] += data[0] * filter[i, 0] + data[1] * filter[i, 1]              data: int16[2], filter: int16[lanes, 2]
    sums[i] += low(data[i]) * filter[i, 0] + high(data[i]) * filter[i, 1]   data: int32[lanes], filter: int16[lanes, 2]
    sums[i] += low(data[i]) * filter[0] + high(data[i]) * filter[1]         data: int32[lanes], filter: int16[2]

low and high are the halves of an int32, each an int16. Exact modulo 2^32 for all int16 but one case: all four numbers
-32768. Centred codes lie within -255 to 255.
"""

# mypy: disable-error-code="untyped-decorator,valid-type"
from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from tvm.s_tir import TensorIntrin
from tvm.script import tirx as T  # noqa: N812 - the name that TVMScript goes by

from . import broadcast
from .table import Instruction

PAIR = 2


@cache
def register(instruction: Instruction, weights_dtype: str = "int16") -> str:
    """Registers the tensor intrinsic with one int16 pair for all lanes; returns its name.

    Args:
        instruction: a row of `table` for int16 pairs.
        weights_dtype: "int16", or "int8" or "uint8", which are widened.
    """
    lanes = instruction.dot.n
    pairs = f"int16x{PAIR * lanes}"
    add = _adder(instruction)

    def added(sums: Any, data: Any, weights: Any) -> Any:
        return add(sums, T.reinterpret(data, dtype=pairs), T.cast(weights, pairs))

    name = f"qcompile_{instruction.symbol.replace('.', '_')}_pair_{weights_dtype}"
    return broadcast.register(name, lanes, PAIR, "int16", weights_dtype, added)


@cache
def register_packed(instruction: Instruction, for_each_lane: bool) -> str:
    """Registers the tensor intrinsic with pairs packed into int32; returns its name.

    Args:
        instruction: a row of `table` for int16 pairs.
        for_each_lane: whether each lane has weights of its own; otherwise all have the same two.
    """
    lanes = instruction.dot.n
    pairs = f"int16x{PAIR * lanes}"
    vector = f"int32x{lanes}"
    added = _adder(instruction)
    rows, step = (lanes, 1) if for_each_lane else (1, 0)

    def weights_of(weights: Any) -> Any:
        if for_each_lane:
            return weights.vload([0, 0], pairs)
        pair = T.reinterpret(weights.vload([0, 0], "int16x2"), dtype="int32")
        return T.reinterpret(T.broadcast(pair, lanes), dtype=pairs)

    @T.prim_func(s_tir=True)
    def description(
        data: T.Buffer((lanes,), "int32", offset_factor=1, align=1),
        weights: T.Buffer((rows, PAIR), "int16", offset_factor=1, align=1),
        sums: T.Buffer((lanes,), "int32", offset_factor=1, align=1),
    ) -> None:
        with T.sblock("root"):
            T.reads(sums[0:lanes], data[0:lanes], weights[0:rows, 0:PAIR])
            T.writes(sums[0:lanes])
            for i in T.serial(0, lanes):
                with T.sblock("update"):
                    vi = T.axis.spatial(lanes, i)
                    sums[vi] = sums[vi] + (
                        T.shift_right(T.shift_left(data[vi], 16), 16) * T.cast(weights[vi * step, 0], "int32")
                        + T.shift_right(data[vi], 16) * T.cast(weights[vi * step, 1], "int32")
                    )

    @T.prim_func(s_tir=True)
    def implementation(
        data: T.Buffer((lanes,), "int32", offset_factor=1, align=1),
        weights: T.Buffer((rows, PAIR), "int16", offset_factor=1, align=1),
        sums: T.Buffer((lanes,), "int32", offset_factor=1, align=1),
    ) -> None:
        with T.sblock("root"):
            T.reads(sums[0:lanes], data[0:lanes], weights[0:rows, 0:PAIR])
            T.writes(sums[0:lanes])
            sums[T.ramp(T.int32(0), 1, lanes)] = added(
                sums[T.ramp(T.int32(0), 1, lanes)],
                T.reinterpret(data.vload([0], vector), dtype=pairs),
                weights_of(weights),
            )

    name = f"qcompile_{instruction.symbol.replace('.', '_')}_packed_{rows}"
    TensorIntrin.register(name, description, implementation, override=True)
    return name


def _adder(instruction: Instruction) -> Callable[[Any, Any, Any], Any]:
    """(sums, pairs, pairs) -> the sums and the products, as one expression."""
    number, vector = T.llvm_lookup_intrinsic_id(instruction.symbol), f"int32x{instruction.dot.n}"

    def added(sums: Any, first: Any, second: Any) -> Any:
        if instruction.accumulates:
            return T.call_llvm_pure_intrin(number, sums, first, second, dtype=vector)
        return sums + T.call_llvm_pure_intrin(number, first, second, dtype=vector)

    return added
