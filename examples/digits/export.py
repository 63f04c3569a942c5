"""Quantized digit network to ONNX, in QOperator and in QDQ style, and its accuracy in ONNX Runtime."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from network import CLASS_COUNT, CONVOLUTIONS, DENSE, IMAGE, IMAGE_SIZE, Convolution, FloatArray, IntArray
from numpy.typing import ArrayLike
from onnx import TensorProto, helper, numpy_helper
from quantize import ActivationFormat, QuantizedLayer

OPSET_VERSION = 13
IR_VERSION = 8
MICROSOFT_DOMAIN = "com.microsoft"
Attributes = Mapping[str, int | list[int]]
SCORES = "scores"
INPUT_DOCUMENTATION = (
    "Handwritten digit classifier for 8x8 gray images. "
    "Input image: float32 [batch, 1, 8, 8], pixel values 0..16 divided by 16 (so 0..1, ink is 1). "
    "Output scores: float32 [batch, 10], unnormalized score of each digit; the largest is the answer."
)


class GraphBuilder:
    """Collects the nodes and initializers of one graph."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []

    def constant(self, name: str, value: ArrayLike) -> str:
        """Add an initializer with the value's own dtype and return its name."""
        self.initializers.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def activation(self, tensor: str, format_: ActivationFormat) -> tuple[str, str]:
        """Add a tensor's scalar float32 scale and uint8 zero point and return their names."""
        scale = self.constant(f"{tensor}_scale", format_.scale)
        return scale, self.constant(f"{tensor}_zero_point", format_.zero_point)

    def node(
        self,
        operator: str,
        name: str,
        inputs: Sequence[str],
        output: str,
        attributes: Attributes | None = None,
    ) -> str:
        """Add a node with one output and return the output's name."""
        made = helper.make_node(operator, list(inputs), [output], name=name)
        for key, value in (attributes or {}).items():
            made.attribute.append(helper.make_attribute(key, value))
        if operator == "QGemm":
            made.domain = MICROSOFT_DOMAIN
        self.nodes.append(made)
        return output

    def weight(self, layer: QuantizedLayer) -> list[str]:
        """Add a layer's int8 weight, its scales and its zero points per channel and return their names."""
        return [
            self.constant(f"{layer.name}_weight", layer.weight),
            self.constant(f"{layer.name}_weight_scale", layer.weight_scale),
            self.constant(f"{layer.name}_weight_zero_point", np.zeros(len(layer.weight), np.int8)),
        ]

    def real_constant(self, tensor: str, parts: Sequence[str]) -> str:
        """Add the DequantizeLinear node, per output channel, of an initializer and return its output."""
        return self.node("DequantizeLinear", f"dequantize_{tensor}", parts, f"{tensor}_real", {"axis": 0})

    def model(self, graph_name: str, documentation: str, domains: Sequence[str]) -> onnx.ModelProto:
        """Finish the graph: float32 image [batch, 1, 8, 8] to float32 scores [batch, 10]."""
        image_shape: list[str | int | None] = ["batch", 1, IMAGE_SIZE, IMAGE_SIZE]
        image = helper.make_tensor_value_info(IMAGE, TensorProto.FLOAT, image_shape)
        scores = helper.make_tensor_value_info(SCORES, TensorProto.FLOAT, ["batch", CLASS_COUNT])
        graph = helper.make_graph(self.nodes, graph_name, [image], [scores], self.initializers)
        opsets = [helper.make_opsetid("", OPSET_VERSION)]
        opsets += [helper.make_opsetid(domain, 1) for domain in domains]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)
        model.doc_string = documentation
        onnx.checker.check_model(model, full_check=True)
        return model


def convolution_attributes(layer: Convolution) -> Attributes:
    """ONNX attributes shared by Conv and QLinearConv."""
    return {
        "kernel_shape": [layer.kernel, layer.kernel],
        "strides": [layer.stride, layer.stride],
        "pads": [layer.padding] * 4,
        "group": layer.groups,
    }


def build_qoperator_model(layers: Sequence[QuantizedLayer]) -> onnx.ModelProto:
    """QLinearConv and com.microsoft QGemm; each ReLU is the saturation at output zero point 0."""
    builder = GraphBuilder()
    formats = builder.activation(IMAGE, layers[0].input_format)
    current = builder.node("QuantizeLinear", "quantize_image", [IMAGE, *formats], "image_quantized")
    convolutions = {layer.name: layer for layer in CONVOLUTIONS}
    for layer in layers:
        name = layer.name
        weight = builder.weight(layer)
        bias = builder.constant(f"{name}_bias", layer.bias)
        output_formats = builder.activation(f"{name}_output", layer.output_format)
        if name == DENSE:
            flat = builder.node("Flatten", "flatten", [current], "flatten_output", {"axis": 1})
            inputs = [flat, *formats, *weight, bias, *output_formats]
            current = builder.node("QGemm", name, inputs, f"{name}_output", {"transB": 1})
        else:
            inputs = [current, *formats, *weight, *output_formats, bias]
            attributes = convolution_attributes(convolutions[name])
            current = builder.node("QLinearConv", name, inputs, f"{name}_output", attributes)
        formats = output_formats
    builder.node("DequantizeLinear", "dequantize_scores", [current, *formats], SCORES)
    documentation = f"{INPUT_DOCUMENTATION} Quantized operators; ReLU is folded into the output zero points."
    return builder.model("digits_qoperator", documentation, [MICROSOFT_DOMAIN])


def build_qdq_model(layers: Sequence[QuantizedLayer]) -> onnx.ModelProto:
    """Float operators between DequantizeLinear and QuantizeLinear, with quantized initializers."""
    builder = GraphBuilder()
    formats = builder.activation(IMAGE, layers[0].input_format)
    source = IMAGE
    current = builder.node("QuantizeLinear", "quantize_image", [IMAGE, *formats], "image_quantized")
    convolutions = {layer.name: layer for layer in CONVOLUTIONS}
    for layer in layers:
        name = layer.name
        if name == DENSE:
            current = builder.node("Flatten", "flatten", [current], "flatten_output", {"axis": 1})
        real_input = builder.node(
            "DequantizeLinear", f"dequantize_{source}", [current, *formats], f"{source}_dequantized"
        )
        weight = builder.real_constant(f"{name}_weight", builder.weight(layer))
        bias_parts = [
            builder.constant(f"{name}_bias", layer.bias),
            builder.constant(f"{name}_bias_scale", layer.bias_scale),
        ]
        inputs = [real_input, weight, builder.real_constant(f"{name}_bias", bias_parts)]
        if name == DENSE:
            real_output = builder.node("Gemm", name, inputs, f"{name}_real", {"transB": 1})
        else:
            attributes = convolution_attributes(convolutions[name])
            sums = builder.node("Conv", name, inputs, f"{name}_sums", attributes)
            real_output = builder.node("Relu", f"{name}_relu", [sums], f"{name}_real")
        formats = builder.activation(f"{name}_output", layer.output_format)
        current = builder.node("QuantizeLinear", f"quantize_{name}", [real_output, *formats], f"{name}_output")
        source = name
    builder.node("DequantizeLinear", "dequantize_scores", [current, *formats], SCORES)
    documentation = f"{INPUT_DOCUMENTATION} Float operators between quantize and dequantize nodes (QDQ)."
    return builder.model("digits_qdq", documentation, [])


def runtime_scores(model: bytes, images: FloatArray) -> FloatArray:
    """Scores float32 [n, 10] of a serialized model, computed by ONNX Runtime without optimizations."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    # Without this, x64 CPUs that lack VNNI may saturate uint8 x int8 products to 16 bits.
    options.add_session_config_entry("session.x64quantprecision", "1")
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run([SCORES], {IMAGE: images})[0], np.float32)


def runtime_accuracy(model: bytes, images: FloatArray, labels: IntArray) -> float:
    """Share of images float32 [n, 1, 8, 8] that a serialized model classifies as labels int64 [n]."""
    return float(np.mean(runtime_scores(model, images).argmax(axis=1) == labels))


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file in one step, so that a reader never sees a part of it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(content)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
