"""Multiply four uint8 by four int8, add the products: x86's pmaddubsw and pmaddwd, one int32 in each lane.

    sums[i] += data[0] * filter[i, 0] + ... + data[3] * filter[i, 3]        data: uint8[4], filter: int8[lanes, 4]

pmaddubsw adds two products in int16 and saturates. It is exact where the weights lie within -64 to 64: two products are
then at most 2 * 255 * 64 = 32640.
"""

# mypy: disable-error-code="untyped-decorator,valid-type"
from __future__ import annotations

from functools import cache

from tvm.s_tir import TensorIntrin
from tvm.script import tirx as T  # noqa: N812 - the name that TVMScript goes by

QUAD = 4


@cache
def register(multiply_bytes: str, add_pairs: str, lanes: int) -> str:
    """Registers the tensor intrinsic; returns its name.

    Args:
        multiply_bytes: LLVM's name of the instruction from bytes to int16.
        add_pairs: LLVM's name of the instruction from int16 pairs to int32.
        lanes: int32 lanes.
    """
    first, second = T.llvm_lookup_intrinsic_id(multiply_bytes), T.llvm_lookup_intrinsic_id(add_pairs)
    data_type, weights_type = f"uint8x{QUAD * lanes}", f"int8x{QUAD * lanes}"
    pairs = f"int16x{2 * lanes}"
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
            # one expression: TVM would give a name of its own to a temporary, in memory
            sums[T.ramp(T.int32(0), 1, lanes)] = sums[T.ramp(T.int32(0), 1, lanes)] + T.call_llvm_pure_intrin(
                second,
                T.call_llvm_pure_intrin(
                    first,
                    T.reinterpret(
                        T.broadcast(T.reinterpret(data.vload([0], "uint8x4"), dtype="int32"), lanes), dtype=data_type
                    ),
                    weights.vload([0, 0], weights_type),
                    dtype=pairs,
                ),
                T.broadcast(T.int16(1), 2 * lanes),
                dtype=vector,
            )

    name = f"qcompile_{multiply_bytes.replace('.', '_')}"
    TensorIntrin.register(name, description, implementation, override=True)
    return name
