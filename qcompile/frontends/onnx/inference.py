"""Element types and shapes of all values, by ONNX's own inference.

That inference knows nothing of the operators in "com.microsoft". In the copy that it sees they are replaced by
standard operators whose outputs have the same shapes and element types.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...errors import ModelError
from .dependency import onnx_package
from .model import declared_sizes, default_opset

MICROSOFT = "com.microsoft"
#: Initializers up to this many elements keep their data: they may be shapes, axes or sizes.
_SMALL = 1024
_STANDARD_DOMAINS = ("", "ai.onnx.ml")
_CONVOLUTION = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
_POOL = ("auto_pad", "ceil_mode", "count_include_pad", "kernel_shape", "pads", "strides")

#: Operator of com.microsoft -> (standard operator, positions of its inputs, attributes that it takes along).
_SAME_TYPE: dict[str, tuple[str, tuple[int, ...], tuple[str, ...]]] = {
    "QLinearAdd": ("Add", (0, 3), ()),
    "QLinearMul": ("Mul", (0, 3), ()),
    "QLinearLeakyRelu": ("Identity", (0,), ()),
    "QLinearSigmoid": ("Identity", (0,), ()),
    "QLinearSoftmax": ("Identity", (0,), ()),
    "QLinearGlobalAveragePool": ("GlobalAveragePool", (0,), ()),
    "QLinearAveragePool": ("AveragePool", (0,), _POOL),
    "QLinearWhere": ("Where", (0, 1, 4), ()),
    "FusedConv": ("Conv", (0, 1), _CONVOLUTION),
    "FusedGemm": ("Gemm", (0, 1), ("transA", "transB")),
    "DynamicQuantizeMatMul": ("MatMul", (0, 1), ()),
    "Gelu": ("Identity", (0,), ()),
    "FastGelu": ("Identity", (0,), ()),
    "QuickGelu": ("Identity", (0,), ()),
    "BiasGelu": ("Identity", (0,), ()),
    "QuantizeLinear": ("QuantizeLinear", (0, 1, 2), ("axis",)),
    "DequantizeLinear": ("DequantizeLinear", (0, 1, 2), ("axis",)),
}


@dataclass(frozen=True)
class ValueType:
    """What is known of a value: dtype is "" and shape None where it is not known, a size None likewise."""

    dtype: str
    shape: tuple[int | None, ...] | None

    @property
    def static_shape(self) -> tuple[int, ...] | None:
        """The shape, or None unless all of it is known."""
        if self.shape is None or any(size is None for size in self.shape):
            return None
        return tuple(size for size in self.shape if size is not None)


def infer_types(model: Any) -> dict[str, ValueType]:
    """Value name -> its type, for every value of the graph of which anything is known.

    Raises:
        ModelError: nodes whose inputs do not fit together.
    """
    onnx = onnx_package()
    try:
        inferred = onnx.shape_inference.infer_shapes(_copy_for_inference(model), strict_mode=True, data_prop=True)
    except Exception as error:  # InferenceError, or what the serialization raises
        raise ModelError(
            "The shapes or types of the model do not fit together.",
            given=str(error).strip(),
            remedy="if input shapes were given, check them; else the model contradicts itself",
        ) from error
    types = {value.name: _value_type(value) for value in (*inferred.graph.input, *inferred.graph.value_info)}
    for value in (*model.graph.value_info, *model.graph.output):  # where inference ended, the model's own word counts
        declared, known = _value_type(value), types.get(value.name, ValueType("", None))
        shape = known.shape if known.static_shape is not None or declared.static_shape is None else declared.shape
        types[value.name] = ValueType(known.dtype or declared.dtype, shape)
    for tensor in model.graph.initializer:
        types[tensor.name] = ValueType(dtype_name(tensor.data_type), tuple(tensor.dims))
    return types


def dtype_name(element_type: int) -> str:
    """NumPy's name of a TensorProto.DataType ("float32", "int8", ...); ONNX's in lower case where NumPy has none."""
    if not element_type:
        return ""
    try:
        name = onnx_package().TensorProto.DataType.Name(element_type).lower()
    except ValueError:
        return f"type {element_type}"
    return {"float": "float32", "double": "float64"}.get(name, str(name))


def _value_type(value: Any) -> ValueType:
    if not value.type.HasField("tensor_type"):
        return ValueType("", None)
    sizes = declared_sizes(value)
    shape = None if sizes is None else tuple(size if isinstance(size, int) else None for size in sizes)
    return ValueType(dtype_name(value.type.tensor_type.elem_type), shape)


def _copy_for_inference(model: Any) -> Any:
    """The model without large data, without the (possibly stale) types of inner values, and with stand-ins."""
    onnx = onnx_package()
    copy = onnx.ModelProto(ir_version=max(model.ir_version, 4))
    copy.opset_import.extend(model.opset_import)
    copy.functions.extend(model.functions)
    opset = default_opset(model)
    if opset is None:
        opset = 13
        copy.opset_import.append(onnx.helper.make_opsetid("", opset))
    graph = copy.graph
    graph.name = model.graph.name or "graph"
    initializers = {tensor.name: tensor for tensor in model.graph.initializer}
    for tensor in model.graph.initializer:
        if math.prod(tensor.dims) <= _SMALL:
            graph.initializer.append(tensor)
        else:
            graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims)))
    graph.sparse_initializer.extend(model.graph.sparse_initializer)
    graph.input.extend(value for value in model.graph.input if value.name not in initializers)
    declared = {value.name: value for value in (*model.graph.value_info, *model.graph.output)}
    functions = {(function.domain, function.name) for function in model.functions}
    for node in model.graph.node:
        stand_in = _stand_in(node, opset) if (node.domain, node.op_type) not in functions else None
        graph.node.extend(stand_in or [node])
        if stand_in is None and node.domain not in _STANDARD_DOMAINS:
            graph.value_info.extend(declared[name] for name in node.output if name in declared)
    return copy


def _stand_in(node: Any, opset: int) -> list[Any] | None:
    """The standard nodes that replace a node of com.microsoft, or None where there are none."""
    if node.domain != MICROSOFT:
        return None
    helper = onnx_package().helper
    attributes = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    if attributes.get("channels_last"):
        return None
    special = _SPECIAL.get(node.op_type)
    if special is not None:
        return special(node, attributes, opset)
    if node.op_type not in _SAME_TYPE:
        return None
    op_type, positions, names = _SAME_TYPE[node.op_type]
    inputs = [node.input[position] for position in positions if position < len(node.input)]
    kept = {name: attributes[name] for name in names if name in attributes}
    return [helper.make_node(op_type, inputs, node.output[:1], **kept)]


def _float_product(op_type: str, node: Any, attributes: dict[str, Any], as_float: bool) -> list[Any]:
    """A product of codes, followed by a cast where the output is float32."""
    onnx = onnx_package()
    kept = {name: attributes[name] for name in ("transA", "transB") if name in attributes}
    output = f"{node.output[0]}/codes" if as_float else node.output[0]
    factors = [node.input[0], node.input[_SECOND[op_type]]]
    nodes = [onnx.helper.make_node(op_type, factors, [output], **kept)]
    if as_float:
        nodes.append(onnx.helper.make_node("Cast", [output], node.output[:1], to=onnx.TensorProto.FLOAT))
    return nodes


#: Where the second factor stands: QGemm has it after the parameters of the first.
_SECOND = {"Gemm": 3, "MatMulInteger": 1}


def _gemm(node: Any, attributes: dict[str, Any], opset: int) -> list[Any]:
    return _float_product("Gemm", node, attributes, as_float=len(node.input) < 8 or not node.input[7])


def _matrix_product_to_float(node: Any, attributes: dict[str, Any], opset: int) -> list[Any]:
    return _float_product("MatMulInteger", node, {}, as_float=True)


def _concatenation(node: Any, attributes: dict[str, Any], opset: int) -> list[Any]:
    helper = onnx_package().helper
    return [helper.make_node("Concat", node.input[2::3], node.output[:1], axis=attributes.get("axis", 0))]


def _mean(node: Any, attributes: dict[str, Any], opset: int) -> list[Any]:
    helper = onnx_package().helper
    keep = {"keepdims": attributes.get("keepdims", 1)}
    axes = attributes.get("axes")
    if opset < 18 or axes is None:
        kept = keep if axes is None else {**keep, "axes": axes}
        return [helper.make_node("ReduceMean", node.input[:1], node.output[:1], **kept)]
    name = f"{node.output[0]}/axes"
    return [
        helper.make_node("Constant", [], [name], value_ints=axes),
        helper.make_node("ReduceMean", [node.input[0], name], node.output[:1], **keep),
    ]


_SPECIAL: dict[str, Callable[[Any, dict[str, Any], int], list[Any]]] = {
    "QGemm": _gemm,
    "MatMulIntegerToFloat": _matrix_product_to_float,
    "QLinearConcat": _concatenation,
    "QLinearReduceMean": _mean,
}
