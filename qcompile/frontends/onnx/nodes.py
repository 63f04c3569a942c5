"""What the front end returns: the parts of a model that become kernels, and the parts that do not."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from ...spec import Operator


@dataclass(frozen=True, eq=False)
class QuantizedNode:
    """One kernel's worth of the graph.

    Args:
        name: the name of its main node (QLinearConv, the Conv of a QDQ group, ...); unique in the model.
        operator: what it computes.
        constants: operator tensor name -> value, canonical, of all tensors that are known at compile time.
        inputs: operator tensor name -> value of the graph, of the others.
        outputs: operator output name -> value of the graph; without those that the model does not use.
        nodes: names of all ONNX nodes that it replaces, in graph order; a DequantizeLinear may serve several kernels.
    """

    name: str
    operator: Operator
    constants: dict[str, npt.NDArray[Any]]
    inputs: dict[str, str]
    outputs: dict[str, str]
    nodes: tuple[str, ...]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, QuantizedNode):
            return NotImplemented
        mine = (self.name, self.operator, self.inputs, self.outputs, self.nodes, list(self.constants))
        yours = (other.name, other.operator, other.inputs, other.outputs, other.nodes, list(other.constants))
        return mine == yours and all(np.array_equal(v, other.constants[k]) for k, v in self.constants.items())

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True)
class SkippedNode:
    """A node of the graph that stays with the model's own runtime, and why."""

    name: str
    op_type: str
    reason: str


@dataclass(frozen=True, eq=False)
class ImportedModel:
    """A model, divided.

    Args:
        nodes: the parts that become kernels, in graph order.
        skipped: every other node of the main graph.
        model: the checked ModelProto with fixed shapes and all data inside.
    """

    nodes: tuple[QuantizedNode, ...]
    skipped: tuple[SkippedNode, ...]
    model: Any = field(repr=False)
