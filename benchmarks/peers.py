"""The same operators in other systems: ONNX Runtime, as a model of one node, and TensorFlow where it is installed."""

from __future__ import annotations

import contextlib
import importlib.util
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
    QuantizeV2,
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
    # its threads would otherwise go on spinning after a call, on the cores of whoever is timed next
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if precise:
        options.add_session_config_entry("session.x64quantprecision", "1")
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    output = np.zeros(result.shape, result.dtype)
    binding = session.io_binding()
    binding.bind_cpu_input(data, values[data])
    binding.bind_output("output", "cpu", 0, output.dtype, output.shape, output.ctypes.data)
    return lambda: session.run_with_iobinding(binding), output


def tensorflow_call(operator: QuantizeV2, values: Values, threads: int) -> Callable[[], object] | None:
    """A call of QuantizeV2 in TensorFlow, or None where TensorFlow is not installed."""
    if importlib.util.find_spec("tensorflow") is None:
        return None
    import tensorflow as tf

    with contextlib.suppress(RuntimeError):  # may be set before the first call only
        tf.config.threading.set_intra_op_parallelism_threads(threads)
    tensors = [tf.constant(values[name]) for name in ("input", "min_range", "max_range")]
    kind = {"int8": tf.qint8, "uint8": tf.quint8, "int16": tf.qint16, "uint16": tf.quint16, "int32": tf.qint32}

    def quantize(data: Any, minimum: Any, maximum: Any) -> Any:
        return tf.raw_ops.QuantizeV2(
            input=data,
            min_range=minimum,
            max_range=maximum,
            T=kind[operator.output_dtype],
            mode=operator.mode,
            round_mode=operator.round_mode,
            narrow_range=operator.narrow_range,
            axis=operator.axis,
            ensure_minimum_range=operator.ensure_minimum_range,
        )

    compiled = tf.function(quantize)
    return lambda: compiled(*tensors)
