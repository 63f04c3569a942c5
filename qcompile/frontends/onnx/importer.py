"""Divides a model into kernels and the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .draft import UNSUITABLE, reason_of
from .graph import GraphIndex, Node, NotTakenOverError
from .model import ModelSource, load_model
from .nodes import ImportedModel, QuantizedNode, SkippedNode
from .qdq import find_groups
from .qoperator import QUANTIZED_OPERATORS


def import_model(model: ModelSource, input_shapes: Mapping[str, Sequence[int]] | None = None) -> ImportedModel:
    """Finds the quantized operators of an ONNX model, with their constants.

    Both styles are known: quantized operators (QLinearConv, ...), and float operators between DequantizeLinear and
    QuantizeLinear. Graphs inside nodes (If, Loop, ...) are not searched.

    Args:
        model: the path of an .onnx file, its bytes, or a ModelProto (which is not changed).
        input_shapes: graph input -> shape; fixes dynamic dimensions.

    Raises:
        ModelError: no readable, valid model, or a quantized operator whose shape depends on an input of unknown size.
        MissingDependencyError: onnx is not installed.
    """
    return import_proto(load_model(model, input_shapes))


def import_proto(model: Any) -> ImportedModel:
    """`import_model` of a ModelProto that `load_model` returned."""
    graph = GraphIndex(model)
    groups = find_groups(graph)
    kernels: list[QuantizedNode] = []
    skipped: list[SkippedNode] = []
    for node in graph.nodes:
        if node.index in groups.kernels:
            kernels.append(groups.kernels[node.index])
        elif node.index not in groups.replaced:
            kernel = _single_node(graph, node, groups.reasons.get(node.index))
            (kernels if isinstance(kernel, QuantizedNode) else skipped).append(kernel)  # type: ignore[arg-type]
    return ImportedModel(tuple(kernels), tuple(skipped), model)


def _single_node(graph: GraphIndex, node: Node, reason: str | None) -> QuantizedNode | SkippedNode:
    kernel_of = QUANTIZED_OPERATORS.get((node.domain, node.op_type))
    if kernel_of is None or (node.domain, node.op_type) in graph.functions:
        return _skipped(node, reason or _other_reason(graph, node))
    try:
        return kernel_of(graph, node)
    except NotTakenOverError as error:
        return _skipped(node, str(error))
    except UNSUITABLE as error:
        return _skipped(node, reason_of(error))


def _skipped(node: Node, reason: str) -> SkippedNode:
    name = f"{node.domain}::{node.op_type}" if node.domain else node.op_type
    return SkippedNode(node.name, name, reason)


def _other_reason(graph: GraphIndex, node: Node) -> str:
    if (node.domain, node.op_type) in graph.functions:
        return "it is a function of the model; what is inside is not searched"
    if node.has_subgraphs:
        return "not one of qcompile's operators; the graphs inside it are not searched"
    if node.op_type == "Constant":
        return "a constant"
    return "not one of qcompile's operators"
