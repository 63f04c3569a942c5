"""The suites: lists of layers from files, and the operators on single elements."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import operands
from operands import Values
from shapes import SHAPES, ProductLayer, ShapeError, read_shapes

import qcompile as qc
from qcompile.reference.random_values import random_values
from qcompile.spec import Operator

QUANTIZE = "quantize"
#: In the order in which they are run; all but the last are files in benchmarks/shapes/.
SUITES = ("layers", "resnet50", "mobilenetv2", "bert_base", QUANTIZE)


@dataclass(frozen=True)
class Case:
    """One operator of a suite.

    Args:
        suite: its name.
        title: for people; unique within the suite, the types and the layout.
        types, layout: as in operands.py; "" where they do not apply.
        count: how often a network has it.
        operator: what is computed.
    """

    suite: str
    title: str
    types: str
    layout: str
    count: int
    operator: Operator

    def values(self) -> Values:
        """All tensors of the operator."""
        if self.suite == QUANTIZE:
            return random_values(self.operator, np.random.default_rng(0))
        return operands.values(self.operator, self.types)


def cases(suite: str, types: Sequence[str], layouts: Sequence[str]) -> list[Case]:
    """The operators of a suite, one group of types and layout after the other.

    Args:
        suite: one of SUITES, or the path of a file of layers.
        types: keys of operands.TYPES.
        layouts: of the convolutions. Products have none and are the same in each; a suite of products alone is listed
            once, with the layout "".

    Raises:
        ShapeError: the file is missing, or has a line that is no layer.
    """
    if suite == QUANTIZE:
        return [Case(QUANTIZE, title, "", "", 1, operator) for title, operator in _quantize()]
    path = SHAPES / f"{suite}.txt" if suite in SUITES else Path(suite)
    if not path.is_file():
        raise ShapeError(f"there is no suite {suite!r}; accepted: {', '.join(SUITES)}, or the path of a file of layers")
    layers = read_shapes(path)
    if all(isinstance(layer, ProductLayer) for layer in layers):
        layouts = ("",)
    return [
        Case(path.stem, layer.title, kind, layout, layer.count, operands.operator(layer, kind, layout))
        for kind in types
        for layout in layouts
        for layer in layers
    ]


def _quantize() -> Iterator[tuple[str, Operator]]:
    """A million elements each."""
    million = (1000, 1000)
    yield "QuantizeLinear uint8", qc.QuantizeLinear(qc.Tensor(million, "float32"))
    yield (
        "QuantizeLinear int8 per axis",
        qc.QuantizeLinear(qc.Tensor(million, "float32"), "int8", "per_axis", "per_axis"),
    )
    yield "DequantizeLinear uint8", qc.DequantizeLinear(qc.Tensor(million, "uint8"))
    yield "DequantizeLinear int8 per axis", qc.DequantizeLinear(qc.Tensor(million, "int8"), "per_axis", "per_axis")
    yield "Requantize int8", qc.Requantize(qc.Tensor(million, "int32"))
    yield "Requantize int8 per axis", qc.Requantize(qc.Tensor(million, "int32"), input_scale="per_axis")
    yield "DynamicQuantizeLinear", qc.DynamicQuantizeLinear(qc.Tensor(million, "float32"))
    for mode in ("SCALED", "MIN_COMBINED", "MIN_FIRST"):
        yield f"QuantizeV2 {mode} int8", qc.QuantizeV2(qc.Tensor(million, "float32"), "int8", mode)
