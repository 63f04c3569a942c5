"""The graph as an index: nodes with unique names, producers, uses, constants, shapes and element types."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from ...errors import ModelError
from ...spec import Tensor
from .dependency import onnx_package
from .inference import ValueType, infer_types
from .model import default_opset, dynamic_inputs, unknown_shape

Array = npt.NDArray[Any]
Value = TypeVar("Value")


class NotTakenOverError(Exception):
    """A node stays with the model's own runtime; the message is the reason."""


@dataclass(frozen=True, eq=False)
class Node:
    """One node of the graph.

    Args:
        index: its place in the graph.
        name: its name, made unique; nodes without one are called by operator and index.
        op_type, domain: which operator it is.
        inputs, outputs: value names; "" where an optional one is missing.
        attributes: attribute name -> its Python value.
        captured: the values of this graph that the graphs inside the node use.
        proto: the NodeProto.
    """

    index: int
    name: str
    op_type: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any]
    captured: frozenset[str]
    proto: Any

    def input(self, position: int) -> str:
        """The value at an input, "" where there is none."""
        return self.inputs[position] if position < len(self.inputs) else ""

    def attribute(self, name: str, default: Value) -> Value:
        """An attribute of the default's type, a list as a tuple.

        Raises:
            NotTakenOverError: it has another type; nobody checks those of com.microsoft.
        """
        value = self.attributes.get(name, default)
        value = tuple(value) if isinstance(value, list) else value
        if not isinstance(value, type(default)):
            raise NotTakenOverError(f"the attribute {name} is a {type(value).__name__}, not a {type(default).__name__}")
        return value

    @property
    def used_values(self) -> tuple[str, ...]:
        """All values that it reads, those of the graphs inside it too; one that it reads twice is there twice."""
        return (*(name for name in self.inputs if name), *sorted(self.captured))

    @property
    def has_subgraphs(self) -> bool:
        """Whether it is an If, a Loop or the like."""
        return any(attribute.HasField("g") or attribute.graphs for attribute in self.proto.attribute)


class GraphIndex:
    """The main graph of a checked ModelProto.

    Args:
        model: what `load_model` returned.
    """

    def __init__(self, model: Any):
        self.model = model
        self.opset = default_opset(model) or 0
        self.initializers = {tensor.name: tensor for tensor in model.graph.initializer}
        inputs = [value.name for value in model.graph.input]
        self.inputs = tuple(name for name in inputs if name not in self.initializers)
        self.defaults = frozenset(name for name in inputs if name in self.initializers and model.ir_version >= 4)
        self.outputs = tuple(value.name for value in model.graph.output)
        self.functions = frozenset((function.domain, function.name) for function in model.functions)
        self.nodes = tuple(_nodes(model.graph))
        self.producers = {name: node for node in self.nodes for name in node.outputs if name}
        self._consumers: dict[str, list[Node]] = {}
        self._uses: Counter[str] = Counter(self.outputs)
        for node in self.nodes:
            self._uses.update(node.used_values)
            for name in dict.fromkeys(node.used_values):
                self._consumers.setdefault(name, []).append(node)
        self._constants: dict[str, Array | None] = {}

    @cached_property
    def types(self) -> dict[str, ValueType]:
        """Value name -> what is known of its type."""
        return infer_types(self.model)

    @cached_property
    def dynamic_inputs(self) -> dict[str, tuple[int | str, ...]]:
        """The graph inputs of unknown size, with their sizes."""
        return dynamic_inputs(self.model)

    def consumers(self, name: str) -> tuple[Node, ...]:
        """The nodes that read a value, each once."""
        return tuple(self._consumers.get(name, ()))

    def only_consumer(self, name: str) -> Node:
        """The one node that reads a value.

        Raises:
            NotTakenOverError: there are several, or none, or the value is an output of the graph.
        """
        if name in self.outputs:
            raise NotTakenOverError(f"{name!r} is an output of the model and is needed in float32")
        if self._uses[name] != 1:
            raise NotTakenOverError(f"{name!r} is used {self._uses[name]} times and is needed in float32")
        return self._consumers[name][0]

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a value.

        Raises:
            ModelError: it depends on inputs of unknown size.
            NotTakenOverError: it cannot be known before run time.
        """
        known = self.types.get(name)
        shape = known.static_shape if known is not None else None
        if shape is not None:
            return shape
        if self.dynamic_inputs:
            raise unknown_shape(name, self.dynamic_inputs)
        raise NotTakenOverError(f"the shape of {name!r} is not known before run time")

    def dtype(self, name: str, accepted: tuple[str, ...]) -> str:
        """NumPy's name of a value's element type.

        Raises:
            NotTakenOverError: it is unknown or none of `accepted`.
        """
        known = self.types.get(name)
        dtype = known.dtype if known is not None else ""
        if dtype not in accepted:
            raise NotTakenOverError(f"{name!r} is {dtype or 'of unknown type'}; accepted: {', '.join(accepted)}")
        return dtype

    def tensor(self, name: str, accepted: tuple[str, ...]) -> Tensor:
        """The description of a value; the errors are those of `shape` and `dtype`, and InvalidTensorError."""
        dtype = self.dtype(name, accepted)
        return Tensor(self.shape(name), dtype)

    def constant(self, name: str) -> Array | None:
        """The value of an initializer, a Constant node or an Identity of one; None where it is not constant.

        An initializer that the caller of the model may override is not constant.
        """
        if name not in self._constants:
            self._constants[name] = self._find_constant(name)
        return self._constants[name]

    def default(self, name: str) -> Array:
        """The value of an initializer, overridable or not."""
        return _array(self.initializers[name])

    def _find_constant(self, name: str) -> Array | None:
        for _ in range(len(self.nodes) + 1):  # a chain of Identity nodes cannot be longer
            if name in self.initializers:
                return None if name in self.defaults else self.default(name)
            node = self.producers.get(name)
            if node is None or node.domain != "":
                return None
            if node.op_type == "Constant":
                return _constant_node(node)
            if node.op_type != "Identity":
                return None
            name = node.input(0)
        return None


def _nodes(graph: Any) -> Iterator[Node]:
    helper = onnx_package().helper
    given = Counter(node.name for node in graph.node)
    taken = {name for name, count in given.items() if name and count == 1}
    for index, proto in enumerate(graph.node):
        name = proto.name
        if not name or given[name] > 1:
            name = _unique(f"{name}_{index}" if name else f"{proto.op_type}_{index}", taken)
        captured = {use for attribute in proto.attribute for use in _captured(attribute)}
        yield Node(
            index=index,
            name=name,
            op_type=proto.op_type,
            domain=proto.domain,
            inputs=tuple(proto.input),
            outputs=tuple(proto.output),
            attributes={
                attribute.name: helper.get_attribute_value(attribute)
                for attribute in proto.attribute
                if not attribute.ref_attr_name
            },
            captured=frozenset(captured),
            proto=proto,
        )


def _unique(name: str, taken: set[str]) -> str:
    candidate, number = name, 1
    while candidate in taken:
        number += 1
        candidate = f"{name}_{number}"
    taken.add(candidate)
    return candidate


def _captured(attribute: Any) -> set[str]:
    """The names that the graphs of an attribute use and do not define."""
    names: set[str] = set()
    for graph in (*attribute.graphs, *((attribute.g,) if attribute.HasField("g") else ())):
        defined = {value.name for value in (*graph.input, *graph.initializer)}
        used = {value.name for value in graph.output}
        for node in graph.node:
            used |= {name for name in node.input if name}
            used |= {name for inner in node.attribute for name in _captured(inner)}
            defined |= set(node.output)
        names |= used - defined
    return names


def _array(tensor: Any) -> Array:
    try:
        return np.asarray(onnx_package().numpy_helper.to_array(tensor))
    except Exception as error:  # whatever NumPy says of too little data
        raise ModelError(f"The initializer {tensor.name!r} cannot be read.", given=str(error)) from error


def _constant_node(node: Node) -> Array | None:
    dtypes: dict[str, Any] = {
        "value_float": np.float32,
        "value_floats": np.float32,
        "value_int": np.int64,
        "value_ints": np.int64,
    }
    for name, value in node.attributes.items():
        if name == "value":
            return _array(value)
        if name in dtypes:
            return np.array(value, dtypes[name])
    return None
