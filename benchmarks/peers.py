"""The same operators in ONNX Runtime: a model of one node, run on arrays of its own memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from qcompile.spec import (
    DequantizeLinear,
    Operator,
    QuantizedLinearConvolution,
    QuantizedLinearMatrixMultiply,
    QuantizeLinear,
)

Values = dict[str, npt.NDArray[Any]]

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


def onnxruntime_call(
    operator: Operator, values: Values, threads: int, precise: bool = False
) -> tuple[Callable[[], object], npt.NDArray[Any]]:
    """A call of the operator in ONNX Runtime with everything but the data constant, and the output it writes.

    Args:
        operator: one of NODES, NCHW.
        values: all of its tensors.
        threads: of the session.
        precise: the session option x64quantprecision, which avoids saturating sums where the CPU has no VNNI.
    """
    import onnx
    import onnxruntime
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
    if isinstance(operator, QuantizedLinearConvolution):
        attributes = {
            "strides": operator.strides,
            "dilations": operator.dilations,
            "group": operator.group_count,
            "pads": [*(operator.start_padding or ()), *(operator.end_padding or ())],
        }
    node = helper.make_node(kind, given, ["output"], **attributes)
    types = {
        np.dtype(dtype): helper.np_dtype_to_tensor_dtype(np.dtype(dtype)) for dtype in ("float32", "uint8", "int8")
    }
    result = operator.outputs[0]
    graph = helper.make_graph(
        [node],
        "one_node",
        [helper.make_tensor_value_info(data, types[values[data].dtype], values[data].shape)],
        [helper.make_tensor_value_info("output", types[np.dtype(result.dtype)], result.shape)],
        [numpy_helper.from_array(np.asarray(values[name]), name) for name in given[1:] if name],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)])
    onnx.checker.check_model(model)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    if precise:
        options.add_session_config_entry("session.x64quantprecision", "1")
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    output = np.zeros(result.shape, result.dtype)
    binding = session.io_binding()
    binding.bind_cpu_input(data, values[data])
    binding.bind_output("output", "cpu", 0, output.dtype, output.shape, output.ctypes.data)
    return lambda: session.run_with_iobinding(binding), output
