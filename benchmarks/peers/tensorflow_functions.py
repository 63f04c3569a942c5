"""TensorFlow, for QuantizeV2, which no other peer has."""

from __future__ import annotations

import contextlib
from typing import Any

from qcompile.spec import Operator, QuantizeV2

from .interface import Peer, Prepared, Values


def _prepare(operator: Operator, values: Values, threads: int) -> Prepared:
    import tensorflow as tf

    assert isinstance(operator, QuantizeV2)
    with contextlib.suppress(RuntimeError):  # may be set before the first call only
        tf.config.threading.set_intra_op_parallelism_threads(threads)
    tensors = [tf.constant(values[name]) for name in ("input", "min_range", "max_range")]
    kinds = {"int8": tf.qint8, "uint8": tf.quint8, "int16": tf.qint16, "uint16": tf.quint16, "int32": tf.qint32}

    def quantize(data: Any, minimum: Any, maximum: Any) -> Any:
        return tf.raw_ops.QuantizeV2(
            input=data,
            min_range=minimum,
            max_range=maximum,
            T=kinds[operator.output_dtype],
            mode=operator.mode,
            round_mode=operator.round_mode,
            narrow_range=operator.narrow_range,
            axis=operator.axis,
            ensure_minimum_range=operator.ensure_minimum_range,
        )

    compiled = tf.function(quantize)
    return Prepared(lambda: compiled(*tensors), None)


TENSORFLOW = Peer(
    "tensorflow",
    "tensorflow",
    ("tensorflow", "tensorflow-cpu"),
    lambda operator: isinstance(operator, QuantizeV2),
    _prepare,
)
