"""Float operators between dequantize and quantize nodes (QDQ): a group of nodes, one kernel.

    DequantizeLinear(x), DequantizeLinear(w) [, DequantizeLinear(bias)] -> Conv | MatMul | Gemm
        [-> Relu | Clip] -> QuantizeLinear

A group is fused only where the integer arithmetic stands for the same real numbers: the bias has exactly the scale
float32(x_scale * w_scale), and nobody else sees the float values inside.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from ...spec import Operator
from ...spec.tensor import CODE_DTYPES, INTEGER_RANGES
from ...spec.values import check_scale
from .draft import UNSUITABLE, Draft, float_constant, linear_convolution, linear_matrix_product, reason_of
from .graph import Array, GraphIndex, Node, NotTakenOverError
from .inference import MICROSOFT
from .nodes import QuantizedNode
from .qoperator import check_elementwise, check_gemm_bias, parameter_axis, quantize_dtype, require_zero, transpose_gemm


@dataclass(frozen=True)
class Groups:
    """The groups of a graph.

    Args:
        kernels: index of the main node -> its kernel.
        replaced: indices of all nodes that the kernels replace.
        reasons: index of a Conv, MatMul or Gemm that is not fused -> why.
    """

    kernels: dict[int, QuantizedNode]
    replaced: frozenset[int]
    reasons: dict[int, str]


@dataclass(frozen=True)
class _Group:
    kernel: QuantizedNode
    inner: tuple[Node, ...]
    dequantizers: tuple[Node, ...]


@dataclass(frozen=True)
class _Tail:
    """What follows the main node: an activation or None, and the QuantizeLinear."""

    activation: Node | None
    quantizer: Node
    output_dtype: str

    @property
    def nodes(self) -> tuple[Node, ...]:
        return (self.quantizer,) if self.activation is None else (self.activation, self.quantizer)


def find_groups(graph: GraphIndex) -> Groups:
    """All groups of the graph; ModelError where a shape depends on inputs of unknown size."""
    groups: dict[int, _Group] = {}
    reasons: dict[int, str] = {}
    for node in graph.nodes:
        if node.domain == "" and node.op_type in _MAIN:
            try:
                groups[node.index] = _fuse(graph, node)
            except NotTakenOverError as error:
                reasons[node.index] = str(error)
            except UNSUITABLE as error:
                reasons[node.index] = reason_of(error)
    inner = {node.index for group in groups.values() for node in group.inner}
    vanished = {
        node.index
        for group in groups.values()
        for node in group.dequantizers
        if node.outputs[0] not in graph.outputs
        and all(consumer.index in groups for consumer in graph.consumers(node.outputs[0]))
    }
    kernels: dict[int, QuantizedNode] = {}
    for index, group in groups.items():
        parts = {node.index: node.name for node in (*group.inner, *group.dequantizers)}
        names = tuple(parts[part] for part in sorted(parts) if part in inner or part in vanished)
        kernels[index] = replace(group.kernel, nodes=names)
    return Groups(kernels, frozenset(inner | vanished), reasons)


def _fuse(graph: GraphIndex, node: Node) -> _Group:
    first, second, operator_of = _MAIN[node.op_type]
    dequantizers = [_dequantizer(graph, node, position, name) for position, name in enumerate((first, second))]
    names: dict[str, str] = {}
    for tensor, source in zip((first, second), dequantizers, strict=True):
        graph.dtype(source.input(0), CODE_DTYPES)
        parts = zip((tensor, f"{tensor}_scale", f"{tensor}_zero_point"), range(3), strict=True)
        names.update({part: source.input(position) for part, position in parts})
    draft = Draft(graph, names)
    draft.scale(f"{first}_scale")
    draft.granularity(f"{first}_zero_point")
    if node.input(2):
        dequantizers.append(_bias_dequantizer(graph, node))
        names["bias"] = dequantizers[-1].input(0)
    tail = _tail(graph, node)
    names["output_scale"], names["output_zero_point"] = tail.quantizer.input(1), tail.quantizer.input(2)
    draft.scale("output_scale")
    draft.granularity("output_zero_point")
    activation = _activation_codes(draft, tail)
    operator = operator_of(draft, node, dequantizers[1], tail.output_dtype, activation)
    if node.input(2):
        _check_bias(draft, dequantizers[2], first, second)
    inner = (node, *tail.nodes)
    kernel = draft.finish(node, operator, tail.quantizer.outputs, inner)
    return _Group(kernel, inner, tuple(dequantizers))


def _dequantizer(graph: GraphIndex, node: Node, position: int, what: str) -> Node:
    """The DequantizeLinear that makes an input of the main node."""
    name = node.input(position)
    source = graph.producers.get(name)
    if source is None or source.op_type != "DequantizeLinear" or source.domain not in ("", MICROSOFT):
        raise NotTakenOverError(f"its {what} {name!r} does not come from DequantizeLinear")
    check_elementwise(source)
    return source


def _bias_dequantizer(graph: GraphIndex, node: Node) -> Node:
    name = node.input(2)
    if graph.constant(name) is not None:
        raise NotTakenOverError(f"its bias {name!r} is a float initializer, not int32 codes behind DequantizeLinear")
    source = _dequantizer(graph, node, 2, "bias")
    graph.dtype(source.input(0), ("int32",))
    return source


def _tail(graph: GraphIndex, node: Node) -> _Tail:
    value = node.outputs[0]
    follower, activation = graph.only_consumer(value), None
    if follower.domain == "" and follower.op_type in _ACTIVATIONS and follower.input(0) == value:
        activation = follower
        value = activation.outputs[0]
        follower = graph.only_consumer(value)
    is_quantizer = follower.op_type == "QuantizeLinear" and follower.domain in ("", MICROSOFT)
    if not is_quantizer or follower.input(0) != value:
        raise NotTakenOverError(f"{value!r} goes to {follower.op_type}, not to QuantizeLinear")
    output_dtype = quantize_dtype(graph, follower)
    if output_dtype not in CODE_DTYPES:
        raise NotTakenOverError(f"its output is quantized to {output_dtype}; accepted: {', '.join(CODE_DTYPES)}")
    return _Tail(activation, follower, output_dtype)


def _activation_codes(draft: Draft, tail: _Tail) -> tuple[int, int] | None:
    """The codes to which the activation clamps. Quantizing is monotone, so clamping codes is the same, exactly."""
    if tail.activation is None:
        return None
    scale = draft.constant("output_scale")
    zero_point = draft.constant("output_zero_point") if draft.exists("output_zero_point") else np.array(0)
    if scale is None or zero_point is None:
        raise NotTakenOverError(f"a {tail.activation.op_type} follows, and the output's parameters are run-time values")
    low, high = _ACTIVATIONS[tail.activation.op_type](draft.graph, tail.activation)
    check_scale("the output's scale", scale)
    if np.isnan(low) or np.isnan(high):
        raise NotTakenOverError(f"{tail.activation.op_type} has a bound that is not a number")
    codes = [
        _code(bound, float_constant(scale), int(zero_point.reshape(())), tail.output_dtype) for bound in (low, high)
    ]
    return min(codes), codes[1]  # a Clip whose minimum is above its maximum gives the maximum


def _code(value: np.float32, scale: np.float32, zero_point: int, dtype: str) -> int:
    low, high = INTEGER_RANGES[dtype]
    with np.errstate(all="ignore"):
        rounded = float(np.rint(np.float32(value / scale)))
    return int(min(max(rounded + zero_point, low), high))


def _relu_bounds(graph: GraphIndex, node: Node) -> tuple[np.float32, np.float32]:
    return np.float32(0), np.float32(np.inf)


def _clip_bounds(graph: GraphIndex, node: Node) -> tuple[np.float32, np.float32]:
    bounds = []
    for position, attribute, missing in ((1, "min", -np.inf), (2, "max", np.inf)):
        name = node.input(position)
        if not name:
            bounds.append(np.float32(node.attribute(attribute, missing)))
            continue
        value = graph.constant(name)
        if value is None or value.size != 1 or value.dtype != np.float32:
            raise NotTakenOverError(f"a Clip follows, whose {attribute} is no constant of one float32 number")
        bounds.append(float_constant(value))
    return bounds[0], bounds[1]


_ACTIVATIONS: dict[str, Callable[[GraphIndex, Node], tuple[np.float32, np.float32]]] = {
    "Relu": _relu_bounds,
    "Clip": _clip_bounds,
}


def _check_axis(draft: Draft, source: Node, tensor: str, axis: int) -> None:
    """Raises NotTakenOverError where the weights' parameters lie along another axis than the output's channels."""
    rank = len(draft.graph.shape(source.input(0)))
    for name in (f"{tensor}_scale", f"{tensor}_zero_point"):
        if draft.exists(name) and np.prod(draft.shape(name)) != 1:
            given = parameter_axis(draft.graph, source, rank)
            if given != axis % rank:
                raise NotTakenOverError(f"its {tensor} is quantized along axis {given}; accepted: axis {axis % rank}")


def _check_bias(draft: Draft, source: Node, first: str, second: str) -> None:
    """Raises NotTakenOverError unless the bias codes have exactly the scale of the products, and zero point 0."""
    bias = Draft(draft.graph, {"scale": source.input(1), "zero_point": source.input(2)})
    if bias.exists("zero_point"):
        require_zero(bias, "zero_point")
    known = [bias.constant("scale"), draft.constant(f"{first}_scale"), draft.constant(f"{second}_scale")]
    scales: list[Array] = [value for value in known if value is not None]
    if len(scales) < len(known):
        raise NotTakenOverError("the scale of its bias cannot be compared: a scale is a run-time value")
    given, one, other = (np.asarray(scale).reshape(-1) for scale in scales)
    with np.errstate(all="ignore"):
        expected = np.multiply(one, other, dtype=np.float32)
    if given.dtype != np.float32 or len(given) not in (1, len(expected)) or not np.all(given == expected):
        raise NotTakenOverError(f"the scale of its bias is not exactly {first}_scale * {second}_scale")


def _convolution(
    draft: Draft, node: Node, weights: Node, output_dtype: str, activation: tuple[int, int] | None
) -> Operator:
    _check_axis(draft, weights, "filter", 0)
    return linear_convolution(draft, node, output_dtype, activation)


def _matrix_product(
    draft: Draft, node: Node, weights: Node, output_dtype: str, activation: tuple[int, int] | None
) -> Operator:
    _check_axis(draft, weights, "b", -1)
    return linear_matrix_product(draft, output_dtype, activation)


def _gemm(draft: Draft, node: Node, weights: Node, output_dtype: str, activation: tuple[int, int] | None) -> Operator:
    for name in ("alpha", "beta"):
        if node.attribute(name, 1.0) != 1:
            raise NotTakenOverError(f"{name} is {node.attribute(name, 1.0)}; accepted: 1")
    _check_axis(draft, weights, "b", 0 if node.attribute("transB", 0) else 1)
    transpose_gemm(draft, node)
    check_gemm_bias(draft)
    return linear_matrix_product(draft, output_dtype, activation)


#: Main node -> the operator's names of its two factors, and what makes the operator.
_MAIN: dict[str, tuple[str, str, Callable[[Draft, Node, Node, str, tuple[int, int] | None], Operator]]] = {
    "Conv": ("input", "filter", _convolution),
    "MatMul": ("a", "b", _matrix_product),
    "Gemm": ("a", "b", _gemm),
}
