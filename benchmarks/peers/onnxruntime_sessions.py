"""ONNX Runtime: a model of one node. NHWC convolutions are Microsoft's QLinearConv with channels_last.

Where the CPU has no VNNI, its uint8 x int8 products saturate. The second peer gets the same weights as uint8 with a
zero point of 128, which is exact: what the session's option x64quantprecision does there to ONNX's own operators.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from qcompile.spec import (
    Convolution,
    DequantizeLinear,
    Operator,
    QuantizedLinearConvolution,
    QuantizedLinearMatrixMultiply,
    QuantizeLinear,
)

from .interface import Peer, Prepared, Values, channels_first

#: operator -> (ONNX operator, its inputs by the names of ours)
NODES: dict[type[Operator], tuple[str, tuple[str, ...]]] = {
    QuantizeLinear: ("QuantizeLinear", ("input", "scale", "zero_point")),
    DequantizeLinear: ("DequantizeLinear", ("input", "scale", "zero_point")),
    QuantizedLinearConvolution: (
        "QLinearConv",
        (
            "input", "input_scale", "input_zero_point", "filter", "filter_scale", "filter_zero_point", "output_scale",
            "output_zero_point", "bias",
        ),
    ),
    QuantizedLinearMatrixMultiply: (
        "QLinearMatMul",
        ("a", "a_scale", "a_zero_point", "b", "b_scale", "b_zero_point", "output_scale", "output_zero_point"),
    ),
}  # fmt: skip
_MICROSOFT = "com.microsoft"


def _supports(operator: Operator) -> bool:
    if isinstance(operator, QuantizedLinearMatrixMultiply):
        return not operator.bias
    return type(operator) in NODES


def one_node_model(operator: Operator, values: Values) -> tuple[bytes, str]:
    """An ONNX model of the operator with everything but the data constant, and the data's name."""
    import onnx
    from onnx import helper, numpy_helper

    kind, names = NODES[type(operator)]
    data = names[0]
    values = dict(values)
    for name in names:
        codes = name.removesuffix("_zero_point")
        if name not in values and codes in values:  # ONNX's operators have all zero points
            values[name] = np.zeros((), values[codes].dtype)
    given = [name if name in values else "" for name in names]
    while given and not given[-1]:
        given.pop()
    attributes: dict[str, Any] = {}
    if isinstance(operator, Convolution):
        attributes = {
            "strides": operator.strides,
            "dilations": operator.dilations,
            "group": operator.group_count,
            "pads": [*(operator.start_padding or ()), *(operator.end_padding or ())],
        }
        if operator.channels_last:
            values["filter"] = channels_first(values["filter"], "NHWC")
            attributes |= {"channels_last": 1, "domain": _MICROSOFT}
    node = helper.make_node(kind, given, ["output"], **attributes)
    result = operator.outputs[0]
    graph = helper.make_graph(
        [node],
        "one_node",
        [helper.make_tensor_value_info(data, _onnx_type(values[data].dtype), values[data].shape)],
        [helper.make_tensor_value_info("output", _onnx_type(result.dtype), result.shape)],
        [numpy_helper.from_array(np.asarray(values[name]), name) for name in given[1:] if name],
    )
    imports = [helper.make_opsetid("", 19), helper.make_opsetid(_MICROSOFT, 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=9)
    onnx.checker.check_model(model)
    return model.SerializeToString(), data


def _with_unsigned_weights(values: Values) -> Values:
    """The same numbers: codes and zero point of the weights are 128 larger."""
    name = "filter" if "filter" in values else "b"
    codes = (values[name].astype(np.int16) + 128).astype(np.uint8)
    return {**values, name: codes, f"{name}_zero_point": np.asarray(128, np.uint8)}


def _onnx_type(dtype: Any) -> int:
    from onnx import helper

    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def _prepare(precise: bool, operator: Operator, values: Values, threads: int) -> Prepared:
    import onnxruntime

    model, data = one_node_model(operator, _with_unsigned_weights(values) if precise else values)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    # its threads would otherwise go on spinning after a call, on the cores of whoever is timed next
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    result = operator.outputs[0]
    output = np.zeros(result.shape, result.dtype)
    binding = session.io_binding()
    binding.bind_cpu_input(data, values[data])
    binding.bind_output("output", "cpu", 0, output.dtype, output.shape, output.ctypes.data)
    return Prepared(lambda: session.run_with_iobinding(binding), lambda: output)


def _supports_precision(operator: Operator) -> bool:
    """Operators with weights of int8 on data of uint8; others are the first peer's."""
    weights = {QuantizedLinearConvolution: ("input", "filter"), QuantizedLinearMatrixMultiply: ("a", "b")}
    names = weights.get(type(operator))
    return (
        names is not None
        and _supports(operator)
        and tuple(operator.tensor(name).dtype for name in names) == ("uint8", "int8")
    )


def _peer(name: str, supports: Callable[[Operator], bool], precise: bool) -> Peer:
    return Peer(
        name,
        "onnxruntime",
        ("onnxruntime", "onnxruntime-gpu"),
        supports,
        partial(_prepare, precise),
        objects=("capi/onnxruntime_pybind11_state*.so",),
        # documentation: "Quantize ONNX Models", on U8S8; weights turned into uint8 are what it advises against it
        saturates_on_avx2=() if precise else ("u8s8",),
    )


ONNXRUNTIME = _peer("onnxruntime", _supports, False)
ONNXRUNTIME_PRECISE = _peer("onnxruntime-precise", _supports_precision, True)
