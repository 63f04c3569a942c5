"""The arguments of generated code."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CodeArgument:
    """One argument of the generated function.

    Args:
        name: a tensor of the operator, or a folded quantity (`constants.packing.fold` computes it).
        dtype: element type.
        shape: the shape that the generated function sees; the elements are in the order of the tensor's own shape.
        kind: "input" (given in every call), "constant" (known at compile time) or "output".
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    kind: str
