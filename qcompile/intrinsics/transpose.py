"""Transpose a block of bytes in registers.

    target[w, c] = source[c, w]         source: 16 or 8 bytes a row, target: as many bytes a row as the source has rows

Rows i and i + n / 2 are interleaved, log2(n) times: a perfect shuffle, which x86 and Arm do in one instruction each.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import tvm
from tvm import tirx
from tvm.s_tir import TensorIntrin
from tvm.script import tirx as T  # noqa: N812 - the name that TVMScript goes by

_BUFFERS = """
@T.prim_func(s_tir=True)
def {name}(a: T.handle, b: T.handle) -> None:
{strides}
    source = T.match_buffer(
        a, ({rows}, {source_ones}{width}), "{dtype}", strides=[{source_strides}], offset_factor=1, align=1)
    target = T.match_buffer(
        b, ({width}, {target_ones}{rows}), "{dtype}", strides=[{target_strides}], offset_factor=1, align=1)
    with T.sblock("root"):
        T.reads(source[0:{rows}, {source_whole}0:{width}])
        T.writes(target[0:{width}, {target_whole}0:{rows}])
{body}
"""
_DESCRIPTION = """\
        for w, c in T.grid({width}, {rows}):
            with T.sblock("move"):
                vw, vc = T.axis.remap("SS", [w, c])
                target[vw, {target_zeros}vc] = source[vc, {source_zeros}vw]"""


@cache
def register(rows: int, width: int, dtype: str, source_ones: int = 0, target_ones: int = 0) -> str:
    """Registers the tensor intrinsic of a block; returns its name.

    Args:
        rows: of the source: a power of two, at most `width`.
        width: bytes of a row of the source, a power of two.
        dtype: "uint8" or "int8".
        source_ones: axes of extent 1 between the two axes of the source.
        target_ones: the same of the target.
    """
    strides = {
        name: [f"{name}{axis}" for axis in range(ones + 1)] for name, ones in (("s", source_ones), ("t", target_ones))
    }
    values: dict[str, Any] = {"rows": rows, "width": width, "dtype": dtype}
    for name, key, ones in (("source", "s", source_ones), ("target", "t", target_ones)):
        values |= {
            f"{name}_ones": "1, " * ones,
            f"{name}_whole": "0:1, " * ones,
            f"{name}_zeros": "0, " * ones,
            f"{name}_strides": ", ".join([*strides[key], "1"]),
        }
    values["strides"] = "\n".join(f"    {name} = T.int32()" for name in (*strides["s"], *strides["t"]))

    def row_of(source: Any, w: int) -> Any:
        middle = [0] * source_ones
        return _transposed_row([source.vload([row, *middle, 0], f"{dtype}x{width}") for row in range(rows)], w, width)

    stores = (f"        target[{w}, {values['target_zeros']}0:{rows}] = row_of(source, {w})" for w in range(width))
    bodies = {"description": _DESCRIPTION.format(**values), "implementation": "\n".join(stores)}
    functions = [
        tvm.script.from_source(_BUFFERS.format(name=name, body=body, **values), {"T": T, "row_of": row_of}, s_tir=True)
        for name, body in bodies.items()
    ]
    name = f"qcompile_transpose_{rows}x{width}_{dtype}_{source_ones}_{target_ones}"
    TensorIntrin.register(name, *functions, override=True)
    return name


def _transposed_row(rows: Sequence[Any], w: int, width: int) -> Any:
    """Column w of rows of `width` elements, as a vector. LLVM finds what several columns have in common."""
    count = len(rows)
    # after the last interleaving vector v holds column v * width / count and those behind it
    vector = _interleaved(rows, w * count // width, count, width)
    first = w * count % width
    return vector if count == width else tirx.Shuffle([vector], list(range(first, first + count)))


def _interleaved(rows: Sequence[Any], vector: int, distance: int, width: int) -> Any:
    """Vector number `vector` after log2(distance) interleavings."""
    if distance == 1:
        return rows[vector]
    half = len(rows) // 2
    first = _interleaved(rows, vector // 2, distance // 2, width)
    second = _interleaved(rows, vector // 2 + half, distance // 2, width)
    start = width // 2 * (vector % 2)
    lanes = [lane + offset for lane in range(start, start + width // 2) for offset in (0, width)]
    return tirx.Shuffle([first, second], lanes)
