"""Nodes that are quantized operators themselves: one node, one kernel."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...spec import ConvolutionInteger, DequantizeLinear, DynamicQuantizeLinear, MatrixMultiplyInteger, QuantizeLinear
from ...spec.elementwise import FLOAT_DTYPES, QUANTIZED_DTYPES
from ...spec.tensor import CODE_DTYPES
from .draft import (
    Draft,
    column_shapes,
    convolution_geometry,
    float_constant,
    linear_convolution,
    linear_matrix_product,
    matrix_pair,
    row_shapes,
)
from .graph import GraphIndex, Node, NotTakenOverError
from .inference import MICROSOFT, dtype_name
from .nodes import QuantizedNode


def draft_of(graph: GraphIndex, node: Node, *tensors: str) -> Draft:
    """The draft of a node whose inputs are these tensors, in this order."""
    return Draft(graph, {tensor: node.input(position) for position, tensor in enumerate(tensors)})


def _output_dtype(draft: Draft, node: Node) -> str:
    """The type of the output's zero point, or else of the output."""
    return draft.graph.dtype(draft.names.get("output_zero_point") or node.outputs[0], CODE_DTYPES)


def _quantized_convolution(graph: GraphIndex, node: Node) -> QuantizedNode:
    draft = draft_of(
        graph,
        node,
        *("input", "input_scale", "input_zero_point"),
        *("filter", "filter_scale", "filter_zero_point"),
        *("output_scale", "output_zero_point", "bias"),
    )
    operator = linear_convolution(draft, node, _output_dtype(draft, node))
    return draft.finish(node, operator, node.outputs, [node])


def _quantized_matrix_product(graph: GraphIndex, node: Node) -> QuantizedNode:
    draft = draft_of(
        graph,
        node,
        *("a", "a_scale", "a_zero_point", "b", "b_scale", "b_zero_point"),
        *("output_scale", "output_zero_point"),
    )
    operator = linear_matrix_product(draft, _output_dtype(draft, node))
    return draft.finish(node, operator, node.outputs, [node])


def _quantized_gemm(graph: GraphIndex, node: Node) -> QuantizedNode:
    draft = draft_of(
        graph,
        node,
        *("a", "a_scale", "a_zero_point", "b", "b_scale", "b_zero_point"),
        *("bias", "output_scale", "output_zero_point"),
    )
    if not draft.exists("output_scale"):
        raise NotTakenOverError("it has no y_scale, so its output is float32")
    transpose_gemm(draft, node)
    alpha = np.float32(node.attribute("alpha", 1.0))
    if alpha != 1:
        scale = draft.constant("a_scale")
        if scale is None or scale.size != 1 or scale.dtype != np.float32:
            raise NotTakenOverError(f"alpha is {alpha} and a_scale is not a constant of one element")
        draft.folded["a_scale"] = np.array(np.float32(alpha * float_constant(scale)))
    check_gemm_bias(draft)
    output = draft.names["output_zero_point"] or draft.names["a"]  # without a zero point the types are equal
    operator = linear_matrix_product(draft, graph.dtype(output, CODE_DTYPES))
    return draft.finish(node, operator, node.outputs, [node])


def transpose_gemm(draft: Draft, node: Node) -> None:
    """Serves transB by transposing a constant b.

    Raises:
        NotTakenOverError: transA, or transB with a b that is not constant.
    """
    if node.attribute("transA", 0):
        raise NotTakenOverError("transA is 1; accepted: 0")
    if node.attribute("transB", 0):
        b = draft.constant("b")
        if b is None:
            raise NotTakenOverError("transB is 1 and b is not constant")
        if b.ndim != 2:
            raise NotTakenOverError(f"b has the shape {b.shape}; accepted: 2 axes")
        draft.folded["b"] = np.ascontiguousarray(b.T)


def check_gemm_bias(draft: Draft) -> None:
    """Raises NotTakenOverError unless C is missing or one number per column."""
    if not draft.exists("bias"):
        return
    columns = draft.tensor("b").shape[-1]
    if draft.shape("bias") not in ((columns,), (1, columns)):
        raise NotTakenOverError(f"C has the shape {draft.shape('bias')}; accepted: ({columns},) or (1, {columns})")


def _integer_convolution(graph: GraphIndex, node: Node) -> QuantizedNode:
    draft = draft_of(graph, node, "input", "filter", "input_zero_point", "filter_zero_point")
    input, filter = draft.tensor("input"), draft.tensor("filter")
    operator = ConvolutionInteger(
        input=input,
        filter=filter,
        input_zero_point=draft.granularity("input_zero_point"),
        filter_zero_point=draft.granularity("filter_zero_point", "per_channel", filter.shape[:1]),
        **convolution_geometry(node, input, filter),
    )
    return draft.finish(node, operator, node.outputs, [node])


def _integer_matrix_product(graph: GraphIndex, node: Node) -> QuantizedNode:
    draft = draft_of(graph, node, "a", "b", "a_zero_point", "b_zero_point")
    a, b = matrix_pair(draft)
    operator = MatrixMultiplyInteger(
        a=a,
        b=b,
        a_zero_point=draft.granularity("a_zero_point", "per_row", *row_shapes(a.shape[-2])),
        b_zero_point=draft.granularity("b_zero_point", "per_column", *column_shapes(b.shape[-1])),
    )
    return draft.finish(node, operator, node.outputs, [node])


def check_elementwise(node: Node) -> None:
    """Raises NotTakenOverError for the attributes of (De)QuantizeLinear that are not supported, by name."""
    if node.attribute("block_size", 0):
        raise NotTakenOverError(
            f"block_size is {node.attribute('block_size', 0)}: blocked quantization is not supported"
        )
    if not node.attribute("saturate", 1):
        raise NotTakenOverError("saturate is 0; accepted: 1")
    if _attribute_dtype(node, "precision") not in ("", *FLOAT_DTYPES):
        accepted = ", ".join(FLOAT_DTYPES)
        raise NotTakenOverError(f"precision is {_attribute_dtype(node, 'precision')}; accepted: {accepted}")


def _attribute_dtype(node: Node, name: str) -> str:
    """The dtype that an attribute names, "" where it is missing."""
    return dtype_name(node.attribute(name, 0)) if node.attribute(name, 0) else ""


def quantize_dtype(graph: GraphIndex, node: Node) -> str:
    """The element type of a QuantizeLinear's output: the zero point's, else output_dtype, else uint8."""
    check_elementwise(node)
    if node.input(2):
        return graph.dtype(node.input(2), QUANTIZED_DTYPES)
    name = dtype_name(node.attribute("output_dtype", 0)) or "uint8"
    if name not in QUANTIZED_DTYPES:
        raise NotTakenOverError(f"output_dtype is {name}; accepted: {', '.join(QUANTIZED_DTYPES)}")
    return name


def parameter_axis(graph: GraphIndex, node: Node, rank: int) -> int:
    """The axis of a (De)QuantizeLinear's parameters, not negative.

    Raises:
        NotTakenOverError: an axis outside the input, or none before opset 13.
    """
    if node.domain == "" and graph.opset < 13:
        raise NotTakenOverError("parameters per axis exist from opset 13")
    axis = node.attribute("axis", 1)
    if not -rank <= axis < rank:
        raise NotTakenOverError(f"axis is {axis}, but the input has {rank} axes")
    return axis % rank


def _elementwise_parameters(
    draft: Draft, node: Node, shape: tuple[int, ...], dtype: str
) -> tuple[str, str | None, int]:
    """Granularity of scale, which is of that dtype, and zero point, and their axis."""
    axis, vectors = 0, []
    if draft.exists("scale") and any(
        draft.exists(name) and np.prod(draft.shape(name)) != 1 for name in ("scale", "zero_point")
    ):
        axis = parameter_axis(draft.graph, node, len(shape))
        vectors = [shape[axis : axis + 1]]
    scale = draft.scale("scale", "per_axis", *vectors, dtype=dtype)
    return scale, draft.granularity("zero_point", "per_axis", *vectors), axis


def _quantize(graph: GraphIndex, node: Node) -> QuantizedNode:
    draft = draft_of(graph, node, "input", "scale", "zero_point")
    output_dtype = quantize_dtype(graph, node)
    input = draft.tensor("input", FLOAT_DTYPES)
    scale, zero_point, axis = _elementwise_parameters(draft, node, input.shape, input.dtype)
    operator = QuantizeLinear(input, output_dtype, scale, zero_point, axis, _attribute_dtype(node, "precision"))
    return draft.finish(node, operator, node.outputs, [node])


def _dequantize(graph: GraphIndex, node: Node) -> QuantizedNode:
    draft = draft_of(graph, node, "input", "scale", "zero_point")
    check_elementwise(node)
    if not draft.exists("scale"):
        raise NotTakenOverError("it has no scale")
    output_dtype = graph.dtype(draft.names["scale"], FLOAT_DTYPES)
    if _attribute_dtype(node, "output_dtype") not in ("", output_dtype):
        given = _attribute_dtype(node, "output_dtype")
        raise NotTakenOverError(f"output_dtype is {given}; accepted: the scale's, {output_dtype}")
    input = draft.tensor("input", (*QUANTIZED_DTYPES, "int32"))
    if input.dtype == "int32" and draft.exists("zero_point"):
        require_zero(draft, "zero_point")
        draft = draft_of(graph, node, "input", "scale")
    scale, zero_point, axis = _elementwise_parameters(draft, node, input.shape, output_dtype)
    operator = DequantizeLinear(input, scale, zero_point, axis, output_dtype)
    return draft.finish(node, operator, node.outputs, [node])


def require_zero(draft: Draft, tensor: str) -> None:
    """Raises NotTakenOverError unless a zero point is known and 0 everywhere."""
    value = draft.constant(tensor)
    if value is None or np.any(value):
        raise NotTakenOverError(f"the zero point {draft.names[tensor]!r} of int32 codes is not constantly 0")


def _dynamic_quantize(graph: GraphIndex, node: Node) -> QuantizedNode:
    draft = draft_of(graph, node, "input")
    operator = DynamicQuantizeLinear(draft.tensor("input", ("float32",)))
    return draft.finish(node, operator, node.outputs, [node])


#: (domain, operator) -> what makes a kernel of the node.
QUANTIZED_OPERATORS: dict[tuple[str, str], Callable[[GraphIndex, Node], QuantizedNode]] = {
    ("", "QLinearConv"): _quantized_convolution,
    ("", "QLinearMatMul"): _quantized_matrix_product,
    (MICROSOFT, "QGemm"): _quantized_gemm,
    ("", "ConvInteger"): _integer_convolution,
    ("", "MatMulInteger"): _integer_matrix_product,
    ("", "QuantizeLinear"): _quantize,
    (MICROSOFT, "QuantizeLinear"): _quantize,
    ("", "DequantizeLinear"): _dequantize,
    (MICROSOFT, "DequantizeLinear"): _dequantize,
    ("", "DynamicQuantizeLinear"): _dynamic_quantize,
}
