"""Multiply four uint8 by four int8 and add the products to an int32: x86's vpdpbusd, for each lane of a vector.

    sums[i] += data[0] * filter[i, 0] + ... + data[3] * filter[i, 3]        data: uint8[4], filter: int8[lanes, 4]

Exact modulo 2^32 for all numbers: four products are at most 4 * 255 * 128, and the sum wraps.
"""

# mypy: disable-error-code="untyped-decorator,valid-type"
from __future__ import annotations

from functools import cache

from tvm.s_tir import TensorIntrin
from tvm.script import tirx as T  # noqa: N812 - the name that TVMScript goes by

QUAD = 4


@cache
def register(llvm_intrinsic: str, lanes: int) -> str:
    """Registers the tensor intrinsic with the same four numbers of data for all lanes; returns its name.

    Args:
        llvm_intrinsic: LLVM's name of the instruction, which takes its bytes as vectors of int8.
        lanes: its int32 lanes.
    """
    number = T.llvm_lookup_intrinsic_id(llvm_intrinsic)
    data_type, weights_type = f"uint8x{QUAD * lanes}", f"int8x{QUAD * lanes}"
    vector = f"int32x{lanes}"

    @T.prim_func(s_tir=True)
    def description(
        data: T.Buffer((QUAD,), "uint8", offset_factor=1, align=1),
        weights: T.Buffer((lanes, QUAD), "int8", offset_factor=1, align=1),
        sums: T.Buffer((lanes,), "int32", offset_factor=1, align=1),
    ) -> None:
        with T.sblock("root"):
            T.reads(sums[0:lanes], data[0:QUAD], weights[0:lanes, 0:QUAD])
            T.writes(sums[0:lanes])
            for i in T.serial(0, lanes):
                for p in T.serial(0, QUAD):
                    with T.sblock("update"):
                        vi, vp = T.axis.remap("SR", [i, p])
                        sums[vi] = sums[vi] + T.cast(data[vp], "int32") * T.cast(weights[vi, vp], "int32")

    @T.prim_func(s_tir=True)
    def implementation(
        data: T.Buffer((QUAD,), "uint8", offset_factor=1, align=1),
        weights: T.Buffer((lanes, QUAD), "int8", offset_factor=1, align=1),
        sums: T.Buffer((lanes,), "int32", offset_factor=1, align=1),
    ) -> None:
        with T.sblock("root"):
            T.reads(sums[0:lanes], data[0:QUAD], weights[0:lanes, 0:QUAD])
            T.writes(sums[0:lanes])
            sums[T.ramp(T.int32(0), 1, lanes)] = T.call_llvm_pure_intrin(
                number,
                sums[T.ramp(T.int32(0), 1, lanes)],
                T.reinterpret(
                    T.broadcast(T.reinterpret(data.vload([0], "uint8x4"), dtype="int32"), lanes), dtype=data_type
                ),
                weights.vload([0, 0], weights_type),
                dtype=vector,
            )

    name = f"qcompile_{llvm_intrinsic.replace('.', '_')}"
    TensorIntrin.register(name, description, implementation, override=True)
    return name
