"""LiteRT (TensorFlow Lite) with its delegate XNNPACK: int8 x int8, NHWC, a model of one operator.

Its padding is none or TensorFlow's; any other needs a PAD in front, which XNNPACK joins with the convolution.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from qcompile.spec import Operator, QuantizedLinearConvolution, QuantizedLinearMatrixMultiply

from .interface import Peer, Prepared, Values


def _supports(operator: Operator) -> bool:
    if isinstance(operator, QuantizedLinearConvolution):
        types = (operator.input.dtype, operator.filter.dtype, operator.output_dtype)
        is_depthwise = operator.group_count == operator.channels == operator.output_channels
        return operator.channels_last and types == ("int8",) * 3 and (operator.group_count == 1 or is_depthwise)
    if isinstance(operator, QuantizedLinearMatrixMultiply):
        is_plain = len(operator.a.shape) == len(operator.b.shape) == 2
        return is_plain and (operator.a.dtype, operator.b.dtype, operator.output_dtype) == ("int8",) * 3
    return False


def _prepare(operator: Operator, values: Values, threads: int) -> Prepared:
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_content=_model(operator, values), num_threads=threads)
    interpreter.allocate_tensors()
    data = values["input" if isinstance(operator, QuantizedLinearConvolution) else "a"]
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], data)
    output = interpreter.get_output_details()[0]["index"]
    return Prepared(interpreter.invoke, lambda: interpreter.get_tensor(output))


class _Model:
    """A model under construction: tensors, their buffers and operators."""

    def __init__(self) -> None:
        from ai_edge_litert import schema_py_generated as schema

        self.schema = schema
        self.buffers = [schema.BufferT()]  # the first one has to be empty
        self.tensors: list[Any] = []
        self.codes: list[Any] = []
        self.operators: list[Any] = []

    def tensor(
        self,
        shape: tuple[int, ...],
        kind: str,
        scales: Any = None,
        zero_point: int = 0,
        axis: int = 0,
        content: Any = None,
    ) -> int:
        """Adds a tensor and returns its number."""
        tensor = self.schema.TensorT()
        tensor.shape = list(shape)
        tensor.type = getattr(self.schema.TensorType, kind)
        tensor.name = f"tensor{len(self.tensors)}"
        if scales is not None:
            quantization = self.schema.QuantizationParametersT()
            quantization.scale = np.atleast_1d(scales).astype(np.float32)
            quantization.zeroPoint = np.full(quantization.scale.shape, zero_point, np.int64)
            quantization.quantizedDimension = axis
            tensor.quantization = quantization
        if content is not None:
            buffer = self.schema.BufferT()
            buffer.data = np.frombuffer(np.ascontiguousarray(content).tobytes(), np.uint8)
            tensor.buffer = len(self.buffers)
            self.buffers.append(buffer)
        self.tensors.append(tensor)
        return len(self.tensors) - 1

    def operator(self, code: str, version: int, inputs: list[int], output: int, options: str, **fields: Any) -> None:
        """Adds an operator with its options."""
        entry = self.schema.OperatorCodeT()
        entry.builtinCode = entry.deprecatedBuiltinCode = getattr(self.schema.BuiltinOperator, code)
        entry.version = version
        operator = self.schema.OperatorT()
        operator.opcodeIndex = len(self.codes)
        operator.inputs, operator.outputs = inputs, [output]
        operator.builtinOptionsType = getattr(self.schema.BuiltinOptions, options)
        operator.builtinOptions = getattr(self.schema, f"{options}T")()
        for name, value in fields.items():
            setattr(operator.builtinOptions, name, value)
        self.codes.append(entry)
        self.operators.append(operator)

    def content(self, data: int, output: int) -> bytes:
        """The model with one input and one output."""
        import flatbuffers

        graph = self.schema.SubGraphT()
        graph.tensors, graph.operators = self.tensors, self.operators
        graph.inputs, graph.outputs = [data], [output]
        model = self.schema.ModelT()
        model.version = 3
        model.operatorCodes, model.subgraphs, model.buffers = self.codes, [graph], self.buffers
        builder = flatbuffers.Builder(1 << 20)
        builder.Finish(model.Pack(builder), b"TFL3")
        return bytes(builder.Output())


def _model(operator: Any, values: Values) -> bytes:
    model = _Model()
    is_convolution = isinstance(operator, QuantizedLinearConvolution)
    name, weights = ("input", "filter") if is_convolution else ("a", "b")
    zero_point = int(values[f"{name}_zero_point"])
    scales = values[f"{weights}_scale"]
    data = model.tensor(values[name].shape, "INT8", values[f"{name}_scale"], zero_point)
    output = model.tensor(operator.output_shape, "INT8", values["output_scale"], int(values["output_zero_point"]))
    bias = -1
    if "bias" in values:
        products = values[f"{name}_scale"] * scales
        bias = model.tensor(products.shape, "INT32", products, content=values["bias"])
    if is_convolution:
        _add_convolution(model, operator, values, data, bias, output)
    else:
        codes = values["b"].T
        filters = model.tensor(codes.shape, "INT8", scales, content=codes)
        model.operator("FULLY_CONNECTED", 5, [data, filters, bias], output, "FullyConnectedOptions", keepNumDims=True)
    return model.content(data, output)


def _add_convolution(model: _Model, operator: Any, values: Values, data: int, bias: int, output: int) -> None:
    padding = model.schema.Padding.VALID
    if _is_same(operator):
        padding = model.schema.Padding.SAME
    elif any(operator.start_padding + operator.end_padding):
        pairs = [(0, 0), *zip(operator.start_padding, operator.end_padding, strict=True), (0, 0)]
        amounts = model.tensor((4, 2), "INT32", content=np.array(pairs, np.int32))
        shape = (1, *operator.padded_spatial, operator.channels)
        padded = model.tensor(shape, "INT8", values["input_scale"], int(values["input_zero_point"]))
        model.operator("PAD", 2, [data, amounts], padded, "PadOptions")
        data = padded
    geometry = {
        "padding": padding,
        "strideH": operator.strides[0],
        "strideW": operator.strides[1],
        "dilationHFactor": operator.dilations[0],
        "dilationWFactor": operator.dilations[1],
    }
    codes, scales = values["filter"], values["filter_scale"]
    if operator.group_count > 1:
        codes = codes.transpose(3, 1, 2, 0)  # O KH KW 1 -> 1 KH KW O
        filters = model.tensor(codes.shape, "INT8", scales, axis=3, content=codes)
        model.operator(
            "DEPTHWISE_CONV_2D",
            3,
            [data, filters, bias],
            output,
            "DepthwiseConv2DOptions",
            depthMultiplier=1,
            **geometry,
        )
    else:
        filters = model.tensor(codes.shape, "INT8", scales, content=codes)
        model.operator("CONV_2D", 3, [data, filters, bias], output, "Conv2DOptions", **geometry)


def _is_same(operator: Any) -> bool:
    """Whether the padding is what TensorFlow calls SAME."""
    extents = zip(operator.input_spatial, operator.filter_span, operator.strides, strict=True)
    totals = [max((math.ceil(size / stride) - 1) * stride + span - size, 0) for size, span, stride in extents]
    starts = tuple(total // 2 for total in totals)
    ends = tuple(total - start for total, start in zip(totals, starts, strict=True))
    return (operator.start_padding, operator.end_padding) == (starts, ends)


LITERT = Peer(
    "litert",
    "ai_edge_litert",
    ("ai-edge-litert",),
    _supports,
    _prepare,
    objects=("libpywrap_litert_common.so", "libLiteRt.so"),
)
