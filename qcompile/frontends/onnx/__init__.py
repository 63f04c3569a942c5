"""ONNX models -> operator descriptions and constants. Never imports TVM; imports onnx where it is used."""

from .importer import import_model
from .nodes import ImportedModel, QuantizedNode, SkippedNode
from .run import RunResult, run_onnx

__all__ = ["ImportedModel", "QuantizedNode", "RunResult", "SkippedNode", "import_model", "run_onnx"]
