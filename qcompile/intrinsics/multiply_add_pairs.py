"""Multiply two int16 pairs, add the two products: x86's pmaddwd, one int32 in each lane.

    sums[i] += data[0] * filter[i, 0] + data[1] * filter[i, 1]          data: int16[2], filter: int16[lanes, 2]

Exact modulo 2^32 for all int16 but one case: all four numbers -32768. Centred codes lie within -255 to 255.
"""

# mypy: disable-error-code="untyped-decorator"
from __future__ import annotations

from functools import cache

from tvm.s_tir import TensorIntrin
from tvm.script import tirx as T  # noqa: N812 - the name that TVMScript goes by

PAIR = 2


@cache
def register(llvm_intrinsic: str, lanes: int) -> str:
    """Registers the tensor intrinsic of an LLVM intrinsic with that many int32 lanes; returns its name."""
    name = f"qcompile_{llvm_intrinsic.replace('.', '_')}"
    number = T.llvm_lookup_intrinsic_id(llvm_intrinsic)
    pairs = f"int16x{PAIR * lanes}"
    vector = f"int32x{lanes}"

    @T.prim_func(s_tir=True)
    def description(
        data: T.Buffer((PAIR,), "int16", offset_factor=1, align=1),  # type: ignore[valid-type]
        weights: T.Buffer((lanes, PAIR), "int16", offset_factor=1, align=1),  # type: ignore[valid-type]
        sums: T.Buffer((lanes,), "int32", offset_factor=1, align=1),  # type: ignore[valid-type]
    ) -> None:
        with T.sblock("root"):
            T.reads(sums[0:lanes], data[0:PAIR], weights[0:lanes, 0:PAIR])
            T.writes(sums[0:lanes])
            for i in T.serial(0, lanes):
                for p in T.serial(0, PAIR):
                    with T.sblock("update"):
                        vi, vp = T.axis.remap("SR", [i, p])
                        sums[vi] = sums[vi] + T.cast(data[vp], "int32") * T.cast(weights[vi, vp], "int32")

    @T.prim_func(s_tir=True)
    def implementation(
        data: T.Buffer((PAIR,), "int16", offset_factor=1, align=1),  # type: ignore[valid-type]
        weights: T.Buffer((lanes, PAIR), "int16", offset_factor=1, align=1),  # type: ignore[valid-type]
        sums: T.Buffer((lanes,), "int32", offset_factor=1, align=1),  # type: ignore[valid-type]
    ) -> None:
        with T.sblock("root"):
            T.reads(sums[0:lanes], data[0:PAIR], weights[0:lanes, 0:PAIR])
            T.writes(sums[0:lanes])
            # one expression: TVM would give a name of its own to a temporary, in memory
            sums[T.ramp(T.int32(0), 1, lanes)] = sums[T.ramp(T.int32(0), 1, lanes)] + T.call_llvm_pure_intrin(
                number,
                T.reinterpret(
                    T.broadcast(T.reinterpret(data.vload([0], "int16x2"), dtype="int32"), lanes), dtype=pairs
                ),
                weights.vload([0, 0], pairs),
                dtype=vector,
            )

    TensorIntrin.register(name, description, implementation, override=True)
    return name
