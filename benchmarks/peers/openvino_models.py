"""OpenVINO's CPU plugin: the ONNX model with DequantizeLinear and QuantizeLinear around a float operator."""

from __future__ import annotations

from typing import Any

import numpy as np

from qcompile.spec import Operator, QuantizedLinearConvolution, QuantizedLinearMatrixMultiply

from .interface import Peer, Prepared, Values, channels_first, float_bias


def _supports(operator: Operator) -> bool:
    """What it would compute in float32 is another operator: uint8 weights, convolutions of int8 activations."""
    if isinstance(operator, QuantizedLinearConvolution):
        return (operator.input.dtype, operator.filter.dtype) == ("uint8", "int8")
    return isinstance(operator, QuantizedLinearMatrixMultiply) and operator.b.dtype == "int8" and not operator.bias


def _prepare(operator: Operator, values: Values, threads: int) -> Prepared:
    import openvino as ov

    core = ov.Core()
    model = core.read_model(_qdq_model(operator, values))
    settings = {
        "INFERENCE_NUM_THREADS": threads,
        "NUM_STREAMS": 1,
        "PERFORMANCE_HINT": "LATENCY",
        "ENABLE_CPU_PINNING": False,
        "INFERENCE_PRECISION_HINT": "f32",
    }
    request = core.compile_model(model, "CPU", settings).create_infer_request()
    data = values["input" if isinstance(operator, QuantizedLinearConvolution) else "a"]
    request.set_input_tensor(ov.Tensor(data, shared_memory=True))
    result = operator.outputs[0]
    output = np.zeros(result.shape, result.dtype)
    request.set_output_tensor(ov.Tensor(output, shared_memory=True))

    def call() -> None:
        # an empty call of `infer` runs on the tensors that are set
        request.start_async()
        request.wait()

    return Prepared(call, lambda: output)


def _qdq_model(operator: Any, values: Values) -> bytes:
    """The float operator between its codes; NHWC data are transposed as numbers, which the plugin makes a layout of."""
    from onnx import helper, numpy_helper

    is_convolution = isinstance(operator, QuantizedLinearConvolution)
    data, weights = ("input", "filter") if is_convolution else ("a", "b")
    constants = dict(values)
    constants[f"{weights}_zero_point"] = np.zeros(values[f"{weights}_scale"].shape, np.int8)
    axis = 0 if is_convolution else 1
    nodes = [
        helper.make_node("DequantizeLinear", [data, f"{data}_scale", f"{data}_zero_point"], ["numbers"]),
        helper.make_node(
            "DequantizeLinear", [weights, f"{weights}_scale", f"{weights}_zero_point"], ["weight_numbers"], axis=axis
        ),
    ]
    if is_convolution:
        constants["filter"] = channels_first(values["filter"], operator.filter.layout)
        constants["bias"] = float_bias(values, data, weights)
        nodes += _convolution(operator)
    else:
        nodes.append(helper.make_node("MatMul", ["numbers", "weight_numbers"], ["result"]))
    nodes.append(helper.make_node("QuantizeLinear", ["result", "output_scale", "output_zero_point"], ["output"]))
    used = {name for node in nodes for name in node.input} & set(constants) - {data}
    kind = helper.np_dtype_to_tensor_dtype(values[data].dtype)
    graph = helper.make_graph(
        nodes,
        "quantized",
        [helper.make_tensor_value_info(data, kind, values[data].shape)],
        [helper.make_tensor_value_info("output", kind, operator.output_shape)],
        [numpy_helper.from_array(np.asarray(constants[name]), name) for name in sorted(used)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    return bytes(model.SerializeToString())


def _convolution(operator: Any) -> list[Any]:
    from onnx import helper

    inner = ("numbers", "result")
    transposes: tuple[list[Any], list[Any]] = ([], [])
    if operator.channels_last:
        inner = ("numbers_nchw", "result_nchw")
        transposes = (
            [helper.make_node("Transpose", ["numbers"], ["numbers_nchw"], perm=[0, 3, 1, 2])],
            [helper.make_node("Transpose", ["result_nchw"], ["result"], perm=[0, 2, 3, 1])],
        )
    node = helper.make_node(
        "Conv",
        [inner[0], "weight_numbers", "bias"],
        [inner[1]],
        strides=operator.strides,
        dilations=operator.dilations,
        group=operator.group_count,
        pads=[*operator.start_padding, *operator.end_padding],
    )
    return [*transposes[0], node, *transposes[1]]


OPENVINO = Peer(
    "openvino",
    "openvino",
    ("openvino",),
    _supports,
    _prepare,
    objects=("libs/libopenvino.so.*", "libs/libopenvino_intel_cpu_plugin.so"),
    avx2_environment={"ONEDNN_MAX_CPU_ISA": "AVX2"},
    # documentation: "Saturation (overflow) Issue Workaround"
    saturates_on_avx2=("u8s8",),
)
