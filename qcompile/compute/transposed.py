"""NCHW inputs with the channels of a position side by side, for kernels whose lanes are channels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import te, tirx

from ..spec import Convolution
from .computation import Builder
from .geometry import TRANSPOSED_POSITIONS

#: (batch, position of a row-major plane, channel) -> code
Code = Callable[[Any, Any, Any], Any]


def transposed_input(build: Builder, operator: Convolution, positions: int) -> Code:
    """The codes of an NCHW input from the stage "rows": [N, blocks of positions, positions, C].

    Args:
        build: the computation.
        operator: the convolution.
        positions: elements of a plane, at least `TRANSPOSED_POSITIONS`.
    """
    raw = build.raw("input", (operator.batch, operator.channels, positions))
    blocks = -(-positions // TRANSPOSED_POSITIONS)

    def start(block: Any) -> Any:
        """The first position of a block; the last block overlaps the one before it."""
        first = block * TRANSPOSED_POSITIONS
        return first if positions % TRANSPOSED_POSITIONS == 0 else tirx.min(first, positions - TRANSPOSED_POSITIONS)

    shape = (operator.batch, blocks, TRANSPOSED_POSITIONS, operator.channels)
    rows = te.compute(shape, lambda n, b, p, c: raw[n, c, start(b) + p], name="rows")

    def code(n: Any, position: Any, channel: Any) -> Any:
        block = position // TRANSPOSED_POSITIONS
        return rows[n, block, position - start(block), channel]

    return code
