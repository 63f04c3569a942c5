"""A kernel in the making: which value plays which part, and which of them are constants."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...errors import InvalidOperatorError, InvalidQuantizationError, InvalidTensorError, QCompileError
from ...spec import Operator, QuantizedLinearConvolution, QuantizedLinearMatrixMultiply, Tensor
from ...spec.tensor import CODE_DTYPES
from ...spec.values import canonical_values
from .graph import Array, GraphIndex, Node, NotTakenOverError
from .nodes import QuantizedNode

#: These tensors come in at run time even where the model has them as initializers: a kernel needs an input.
DATA_TENSORS = ("input", "a")
#: Errors of the descriptions and of values: such a node is left to others.
UNSUITABLE = (InvalidOperatorError, InvalidTensorError, InvalidQuantizationError)


@dataclass
class Draft:
    """The tensors of one kernel.

    Args:
        graph: where they are.
        names: operator tensor name -> value of the graph; "" where it does not exist.
        folded: operator tensor name -> a constant computed from the model's, in place of a value.
    """

    graph: GraphIndex
    names: Mapping[str, str]
    folded: dict[str, Array] = field(default_factory=dict)

    def exists(self, tensor: str) -> bool:
        """Whether the model has this tensor."""
        return tensor in self.folded or bool(self.names.get(tensor))

    def constant(self, tensor: str) -> Array | None:
        """Its value, or None where it is not known at compile time."""
        if tensor in self.folded:
            return self.folded[tensor]
        name = self.names.get(tensor)
        return self.graph.constant(name) if name else None

    def shape(self, tensor: str) -> tuple[int, ...]:
        """Its shape; the errors are those of `GraphIndex.shape`."""
        return self.folded[tensor].shape if tensor in self.folded else self.graph.shape(self.names[tensor])

    def tensor(self, tensor: str, accepted: tuple[str, ...] = CODE_DTYPES) -> Tensor:
        """Its description; NotTakenOverError where the element type is none of `accepted`."""
        described = self.graph.tensor(self.names[tensor], accepted)
        return Tensor(self.shape(tensor), described.dtype)

    def granularity(self, tensor: str, vector: str = "", *shapes: tuple[int, ...]) -> str | None:
        """None where the parameter does not exist, "per_tensor" for one element, else `vector` for one of `shapes`.

        Raises:
            NotTakenOverError: any other shape.
        """
        if not self.exists(tensor):
            return None
        shape = self.shape(tensor)
        if math.prod(shape) == 1:
            return "per_tensor"
        if shape not in shapes:
            accepted = " or ".join(["one element", *map(str, shapes)])
            raise NotTakenOverError(f"{self.names[tensor]!r} ({tensor}) has the shape {shape}; accepted: {accepted}")
        return vector

    def scale(self, tensor: str, vector: str = "", *shapes: tuple[int, ...], dtype: str = "float32") -> str:
        """`granularity` of a scale, which has to be there and of that dtype."""
        if not self.exists(tensor):
            raise NotTakenOverError(f"it has no {tensor}")
        self.graph.dtype(self.names[tensor], (dtype,))
        return self.granularity(tensor, vector, *shapes) or "per_tensor"

    def finish(self, node: Node, operator: Operator, outputs: Sequence[str], replaced: Sequence[Node]) -> QuantizedNode:
        """The finished kernel of `node`, whose results are the values `outputs`.

        Raises:
            NotTakenOverError: values that the operator does not allow.
        """
        given: dict[str, Array] = {}
        inputs: dict[str, str] = {}
        for role in operator.tensors:
            constant = None if role.name in DATA_TENSORS else self.constant(role.name)
            if constant is not None:
                given[role.name] = constant
                continue
            name = inputs[role.name] = self.names[role.name]
            self.graph.dtype(name, (role.dtype,))
            if self.graph.shape(name) not in role.accepted_shapes():
                raise NotTakenOverError(f"{name!r} ({role.name}) has the shape {self.graph.shape(name)}")
        constants = canonical_values(operator, given)
        operator.check_values(constants)
        results = {role.name: name for role, name in zip(operator.outputs, outputs, strict=False) if name}
        for role in operator.outputs:
            known = self.graph.types.get(results.get(role.name, ""))
            if known is not None and known.static_shape not in (None, role.shape):
                raise NotTakenOverError(
                    f"{results[role.name]!r} has the shape {known.static_shape} in the model, not {role.shape}"
                )
        return QuantizedNode(
            name=node.name,
            operator=operator,
            constants=constants,
            inputs=inputs,
            outputs=results,
            nodes=tuple(part.name for part in sorted(replaced, key=lambda part: part.index)),
        )


def reason_of(error: QCompileError) -> str:
    """An error of the descriptions in one line, as the reason for leaving a node to others."""
    details = [("given", error.given), ("accepted", error.accepted)]
    return " ".join([error.problem, *(f"({word}: {value})" for word, value in details if value is not None)])


def convolution_geometry(node: Node, input: Tensor, filter: Tensor) -> dict[str, Any]:
    """Strides, dilations, padding and groups from the attributes of a Conv, ConvInteger or QLinearConv.

    Raises:
        NotTakenOverError: no 1-D or 2-D convolution, or a kernel_shape that contradicts the filter.
    """
    rank = len(input.shape) - 2
    if rank not in (1, 2) or len(filter.shape) != rank + 2:
        raise NotTakenOverError(f"it is a convolution over {rank} spatial axes; accepted: 1 and 2")
    spatial = input.shape[2:]
    kernel = filter.shape[2:]
    kernel_shape = node.attribute("kernel_shape", kernel)
    if kernel_shape != kernel:
        raise NotTakenOverError(f"kernel_shape {kernel_shape} contradicts the filter {filter.shape}")
    strides = node.attribute("strides", (1,) * rank)
    dilations = node.attribute("dilations", (1,) * rank)
    pads = node.attribute("pads", (0,) * (2 * rank))
    if len(strides) != rank or len(dilations) != rank or len(pads) != 2 * rank or min(strides) < 1:
        raise NotTakenOverError(
            f"strides {strides}, dilations {dilations} or pads {pads} have a wrong length or number"
        )
    start, end = pads[:rank], pads[rank:]
    automatic = node.attribute("auto_pad", b"NOTSET").decode(errors="replace")
    if automatic in ("SAME_UPPER", "SAME_LOWER"):
        spans = [(size - 1) * dilation + 1 for size, dilation in zip(kernel, dilations, strict=True)]
        totals = [
            max((math.ceil(size / stride) - 1) * stride + span - size, 0)
            for size, stride, span in zip(spatial, strides, spans, strict=True)
        ]
        less, more = tuple(total // 2 for total in totals), tuple(total - total // 2 for total in totals)
        start, end = (less, more) if automatic == "SAME_UPPER" else (more, less)
    elif automatic == "VALID":
        start = end = (0,) * rank
    elif automatic != "NOTSET":
        raise NotTakenOverError(f"unknown auto_pad {automatic!r}")
    return {
        "strides": strides,
        "dilations": dilations,
        "start_padding": start,
        "end_padding": end,
        "group_count": node.attribute("group", 1),
    }


def linear_convolution(
    draft: Draft, node: Node, output_dtype: str, activation: tuple[int, int] | None = None
) -> QuantizedLinearConvolution:
    """The operator of a QLinearConv, or of a Conv between dequantize and quantize nodes."""
    input, filter = draft.tensor("input"), draft.tensor("filter")
    geometry = convolution_geometry(node, input, filter)
    channels = filter.shape[:1]
    for tensor in ("input_scale", "output_scale"):
        draft.scale(tensor)
    return QuantizedLinearConvolution(
        input=input,
        filter=filter,
        output_dtype=output_dtype,
        bias=draft.exists("bias"),
        input_zero_point=draft.granularity("input_zero_point"),
        filter_scale=draft.scale("filter_scale", "per_channel", channels),
        filter_zero_point=draft.granularity("filter_zero_point", "per_channel", channels),
        output_zero_point=draft.granularity("output_zero_point"),
        activation=activation,
        **geometry,
    )


def matrix_pair(draft: Draft) -> tuple[Tensor, Tensor]:
    """The factors a and b; NotTakenOverError where one of them is a vector."""
    pair = draft.tensor("a"), draft.tensor("b")
    for name, tensor in zip("ab", pair, strict=True):
        if len(tensor.shape) < 2:
            raise NotTakenOverError(f"{name} has the shape {tensor.shape}; accepted: 2 to 4 axes")
    return pair


def row_shapes(rows: int) -> list[tuple[int, ...]]:
    """The shapes in which ONNX has a parameter per row."""
    return [(rows,), (rows, 1), (1, rows, 1), (1, 1, rows, 1)]


def column_shapes(columns: int) -> list[tuple[int, ...]]:
    """The shapes in which ONNX has a parameter per column."""
    return [(columns,), (1, columns), (1, 1, columns), (1, 1, 1, columns)]


def linear_matrix_product(
    draft: Draft, output_dtype: str, activation: tuple[int, int] | None = None
) -> QuantizedLinearMatrixMultiply:
    """The operator of a QLinearMatMul or QGemm, or of a product between dequantize and quantize nodes."""
    a, b = matrix_pair(draft)
    rows = row_shapes(a.shape[-2])
    columns = column_shapes(b.shape[-1])
    return QuantizedLinearMatrixMultiply(
        a=a,
        b=b,
        output_dtype=output_dtype,
        bias=draft.exists("bias"),
        a_scale=draft.scale("a_scale", "per_row", *rows),
        a_zero_point=draft.granularity("a_zero_point", "per_row", *rows),
        b_scale=draft.scale("b_scale", "per_column", *columns),
        b_zero_point=draft.granularity("b_zero_point", "per_column", *columns),
        output_scale=draft.scale("output_scale", "per_row", *rows),
        output_zero_point=draft.granularity("output_zero_point", "per_row", *rows),
        activation=activation,
    )


def float_constant(value: Array) -> np.float32:
    """The only element of a float32 constant."""
    number: np.float32 = value.astype(np.float32).reshape(-1)[0]
    return number
