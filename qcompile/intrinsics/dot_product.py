"""Multiply four uint8 by four int8 and add the products to an int32: x86's vpdpbusd, for each lane of a vector.

    sums[i] += data[0] * filter[i, 0] + ... + data[3] * filter[i, 3]        data: uint8[4], filter: int8[lanes, 4]

Exact modulo 2^32 for all numbers: four products are at most 4 * 255 * 128, and the sum wraps.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from tvm.script import tirx as T  # noqa: N812 - the name that TVMScript goes by

from . import broadcast
from .table import Instruction

QUAD = 4


@cache
def register(instruction: Instruction) -> str:
    """Registers the tensor intrinsic with the same four numbers of data for all lanes; returns its name.

    Args:
        instruction: a row of `table` for uint8 and int8 that adds to its first operand.
    """
    number, lanes = T.llvm_lookup_intrinsic_id(instruction.symbol), instruction.dot.n

    def added(sums: Any, data: Any, weights: Any) -> Any:
        codes = T.reinterpret(data, dtype=f"uint8x{QUAD * lanes}")
        return T.call_llvm_pure_intrin(number, sums, codes, weights, dtype=f"int32x{lanes}")

    name = f"qcompile_{instruction.symbol.replace('.', '_')}"
    return broadcast.register(name, lanes, QUAD, "uint8", "int8", added)
