"""WHAT to compute: frozen descriptions of operators and tensors. Never imports TVM."""

from .convolution import Convolution, ConvolutionInteger, QuantizedLinearConvolution
from .elementwise import DequantizeLinear, DynamicQuantizeLinear, QuantizeLinear, Requantize
from .matrix_multiply import MatrixMultiply, MatrixMultiplyInteger, QuantizedLinearMatrixMultiply
from .operator import Operator
from .quantize_v2 import QuantizeV2
from .tensor import Tensor, TensorRole

__all__ = [
    "Convolution",
    "ConvolutionInteger",
    "DequantizeLinear",
    "DynamicQuantizeLinear",
    "MatrixMultiply",
    "MatrixMultiplyInteger",
    "Operator",
    "QuantizeLinear",
    "QuantizeV2",
    "QuantizedLinearConvolution",
    "QuantizedLinearMatrixMultiply",
    "Requantize",
    "Tensor",
    "TensorRole",
]
