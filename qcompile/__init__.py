"""qcompile compiles quantized operators into exact, fast native modules for several hardware targets.

    import qcompile as qc
    kernel = qc.compile(qc.QuantizedLinearConvolution(...), target="host", constants={...})
    y = kernel(input=x)

All names are loaded when they are first used: `import qcompile` and `qcompile.load` need no compiler code.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

#: public name -> module that defines it; "" is a module that can be called
_PUBLIC = {
    "__version__": "version",
    "compile": "pipeline.compile",
    "load": "runtime.loader",
    "reference": "",
    "run_onnx": "frontends.onnx",
    "tune": "tuning.tune",
    "verify": "checks.verification",
    "Bundle": "runtime.loader",
    "Kernel": "runtime.kernel",
    "Tensor": "spec",
    "QuantizedLinearConvolution": "spec",
    "QuantizedLinearMatrixMultiply": "spec",
    "ConvolutionInteger": "spec",
    "MatrixMultiplyInteger": "spec",
    "Requantize": "spec",
    "QuantizeLinear": "spec",
    "DequantizeLinear": "spec",
    "DynamicQuantizeLinear": "spec",
    "QuantizeV2": "spec",
    "QCompileError": "errors",
    "InvalidOperatorError": "errors",
    "InvalidTensorError": "errors",
    "InvalidQuantizationError": "errors",
    "AccumulatorOverflowError": "errors",
    "AccumulatorOverflowWarning": "errors",
    "BundleError": "errors",
    "EmulationError": "errors",
    "EmulationFaultError": "errors",
    "FileWriteError": "errors",
    "IncompatibleMachineError": "errors",
    "KernelError": "errors",
    "LoweringError": "errors",
    "MissingDependencyError": "errors",
    "ModelError": "errors",
    "RecordsError": "errors",
    "TargetFileError": "errors",
    "ToolchainError": "errors",
    "TuningError": "errors",
    "UnknownNameError": "errors",
    "UnsupportedError": "errors",
}
__all__ = [
    "AccumulatorOverflowError",
    "AccumulatorOverflowWarning",
    "Bundle",
    "BundleError",
    "ConvolutionInteger",
    "DequantizeLinear",
    "DynamicQuantizeLinear",
    "EmulationError",
    "EmulationFaultError",
    "FileWriteError",
    "IncompatibleMachineError",
    "InvalidOperatorError",
    "InvalidQuantizationError",
    "InvalidTensorError",
    "Kernel",
    "KernelError",
    "LoweringError",
    "MatrixMultiplyInteger",
    "MissingDependencyError",
    "ModelError",
    "QCompileError",
    "QuantizeLinear",
    "QuantizeV2",
    "QuantizedLinearConvolution",
    "QuantizedLinearMatrixMultiply",
    "RecordsError",
    "Requantize",
    "TargetFileError",
    "Tensor",
    "ToolchainError",
    "TuningError",
    "UnknownNameError",
    "UnsupportedError",
    "__version__",
    "compile",
    "load",
    "reference",
    "run_onnx",
    "tune",
    "verify",
]

if TYPE_CHECKING:
    from .checks.verification import verify
    from .errors import (
        AccumulatorOverflowError,
        AccumulatorOverflowWarning,
        BundleError,
        EmulationError,
        EmulationFaultError,
        FileWriteError,
        IncompatibleMachineError,
        InvalidOperatorError,
        InvalidQuantizationError,
        InvalidTensorError,
        KernelError,
        LoweringError,
        MissingDependencyError,
        ModelError,
        QCompileError,
        RecordsError,
        TargetFileError,
        ToolchainError,
        TuningError,
        UnknownNameError,
        UnsupportedError,
    )
    from .frontends.onnx import run_onnx
    from .pipeline.compile import compile
    from .reference import reference
    from .runtime.kernel import Kernel
    from .runtime.loader import Bundle, load
    from .spec import (
        ConvolutionInteger,
        DequantizeLinear,
        DynamicQuantizeLinear,
        MatrixMultiplyInteger,
        QuantizedLinearConvolution,
        QuantizedLinearMatrixMultiply,
        QuantizeLinear,
        QuantizeV2,
        Requantize,
        Tensor,
    )
    from .tuning.tune import tune


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'qcompile' has no attribute {name!r}")
    if not _PUBLIC[name]:
        return importlib.import_module(f".{name}", __name__)
    value = getattr(importlib.import_module(f".{_PUBLIC[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
