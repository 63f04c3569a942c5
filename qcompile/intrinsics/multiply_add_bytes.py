"""Multiply four uint8 by four int8, add the products: x86's pmaddubsw and pmaddwd, one int32 in each lane.

    sums[i] += data[0] * filter[i, 0] + ... + data[3] * filter[i, 3]        data: uint8[4], filter: int8[lanes, 4]

pmaddubsw adds two products in int16 and saturates. It is exact where the weights lie within -64 to 64: two products are
then at most 2 * 255 * 64 = 32640.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from tvm.script import tirx as T  # noqa: N812 - the name that TVMScript goes by

from . import broadcast
from .table import INSTRUCTIONS, Instruction

QUAD = 4


@cache
def register(instruction: Instruction) -> str:
    """Registers the tensor intrinsic; returns its name.

    Args:
        instruction: a row of `table` from bytes to int16, completed by one from int16 pairs to int32.
    """
    lanes = instruction.dot.n
    first, second = (
        T.llvm_lookup_intrinsic_id(row.symbol) for row in (instruction, INSTRUCTIONS[instruction.completed_by])
    )

    def added(sums: Any, data: Any, weights: Any) -> Any:
        codes = T.reinterpret(data, dtype=f"uint8x{QUAD * lanes}")
        pairs = T.call_llvm_pure_intrin(first, codes, weights, dtype=f"int16x{2 * lanes}")
        ones = T.broadcast(T.int16(1), 2 * lanes)
        return sums + T.call_llvm_pure_intrin(second, pairs, ones, dtype=f"int32x{lanes}")

    name = f"qcompile_{instruction.symbol.replace('.', '_')}"
    return broadcast.register(name, lanes, QUAD, "uint8", "int8", added)
