"""What multiplying instructions have in common that give all lanes the same few numbers of data.

    sums[i] += data[0] * weights[i, 0] + ... + data[n - 1] * weights[i, n - 1]

The n numbers of data are 32 bits together, and are loaded into every lane at once.
"""

# mypy: disable-error-code="untyped-decorator,valid-type"
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm.s_tir import TensorIntrin
from tvm.script import tirx as T  # noqa: N812 - the name that TVMScript goes by


def register(
    name: str, lanes: int, count: int, data_dtype: str, weights_dtype: str, added: Callable[[Any, Any, Any], Any]
) -> str:
    """Registers a tensor intrinsic; returns its name.

    Args:
        name: of the intrinsic.
        lanes: int32 lanes.
        count: numbers that each lane multiplies.
        data_dtype: of the data; `count` of them are 32 bits.
        weights_dtype: of the weights.
        added: (sums, the data of each lane as int32, all weights) -> the new sums. One expression: TVM would give a
            name of its own to a temporary, in memory.
    """
    data_vector, weights_vector = f"{data_dtype}x{count}", f"{weights_dtype}x{count * lanes}"

    @T.prim_func(s_tir=True)
    def description(
        data: T.Buffer((count,), data_dtype, offset_factor=1, align=1),
        weights: T.Buffer((lanes, count), weights_dtype, offset_factor=1, align=1),
        sums: T.Buffer((lanes,), "int32", offset_factor=1, align=1),
    ) -> None:
        with T.sblock("root"):
            T.reads(sums[0:lanes], data[0:count], weights[0:lanes, 0:count])
            T.writes(sums[0:lanes])
            for i in T.serial(0, lanes):
                for p in T.serial(0, count):
                    with T.sblock("update"):
                        vi, vp = T.axis.remap("SR", [i, p])
                        sums[vi] = sums[vi] + T.cast(data[vp], "int32") * T.cast(weights[vi, vp], "int32")

    @T.prim_func(s_tir=True)
    def implementation(
        data: T.Buffer((count,), data_dtype, offset_factor=1, align=1),
        weights: T.Buffer((lanes, count), weights_dtype, offset_factor=1, align=1),
        sums: T.Buffer((lanes,), "int32", offset_factor=1, align=1),
    ) -> None:
        with T.sblock("root"):
            T.reads(sums[0:lanes], data[0:count], weights[0:lanes, 0:count])
            T.writes(sums[0:lanes])
            sums[T.ramp(T.int32(0), 1, lanes)] = added(
                sums[T.ramp(T.int32(0), 1, lanes)],
                T.broadcast(T.reinterpret(data.vload([0], data_vector), dtype="int32"), lanes),
                weights.vload([0, 0], weights_vector),
            )

    TensorIntrin.register(name, description, implementation, override=True)
    return name
