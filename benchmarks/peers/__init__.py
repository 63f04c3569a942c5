"""The same operators in other libraries. A row of PEERS is all that the benchmarks know of a library."""

from __future__ import annotations

from .interface import Peer, Prepared, Values
from .litert import LITERT
from .onnxruntime_sessions import ONNXRUNTIME, ONNXRUNTIME_PRECISE
from .openvino_models import OPENVINO
from .tensorflow_functions import TENSORFLOW
from .torch_quantized import TORCH_FBGEMM, TORCH_ONEDNN

PEERS = {
    peer.name: peer
    for peer in (ONNXRUNTIME, ONNXRUNTIME_PRECISE, LITERT, TORCH_FBGEMM, TORCH_ONEDNN, OPENVINO, TENSORFLOW)
}

__all__ = ["PEERS", "Peer", "Prepared", "Values"]
