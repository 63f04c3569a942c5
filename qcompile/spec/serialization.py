"""Operator descriptions from plain (untrusted) JSON or TOML values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

from ..errors import InvalidOperatorError
from .convolution import ConvolutionInteger, QuantizedLinearConvolution
from .elementwise import DequantizeLinear, DynamicQuantizeLinear, QuantizeLinear, Requantize
from .matrix_multiply import MatrixMultiplyInteger, QuantizedLinearMatrixMultiply
from .operator import Operator
from .quantize_v2 import QuantizeV2
from .tensor import Tensor

OPERATORS: tuple[type[Operator], ...] = (
    QuantizedLinearConvolution,
    QuantizedLinearMatrixMultiply,
    ConvolutionInteger,
    MatrixMultiplyInteger,
    Requantize,
    QuantizeLinear,
    DequantizeLinear,
    DynamicQuantizeLinear,
    QuantizeV2,
)
_BY_NAME = {operator.__name__: operator for operator in OPERATORS}


def from_dictionary(values: Mapping[str, Any]) -> Operator:
    """The operator that `Operator.to_dictionary` wrote, or that a person wrote in TOML.

    Raises:
        InvalidOperatorError: an unknown operator or field, a missing field, or a value of the wrong kind.
    """
    if not isinstance(values, Mapping):
        raise InvalidOperatorError("An operator must be a table of fields.", given=type(values).__name__)
    name = values.get("operator")
    operator_class = _BY_NAME.get(name) if isinstance(name, str) else None
    if operator_class is None:
        problem = "Unknown operator." if "operator" in values else "The field 'operator' is missing."
        given = repr(name) if "operator" in values else ", ".join(map(str, values)) or "nothing"
        raise InvalidOperatorError(problem, given=given, accepted=", ".join(_BY_NAME))
    known = {field.name: field for field in fields(operator_class)}  # type: ignore[arg-type]
    arguments: dict[str, Any] = {}
    for field, value in values.items():
        if field == "operator":
            continue
        if field not in known:
            raise InvalidOperatorError(f"{name} has no such field.", given=repr(field), accepted=", ".join(known))
        arguments[field] = _tensor(field, value) if isinstance(value, Mapping) else _immutable(field, value)
    needed = [field for field, entry in known.items() if entry.default is MISSING and field not in arguments]
    if needed:
        raise InvalidOperatorError(f"{name} lacks a field.", given=", ".join(arguments) or "none", accepted=needed[0])
    try:
        return operator_class(**arguments)
    except TypeError as error:
        raise InvalidOperatorError(f"{name}: {error}.", accepted=", ".join(known)) from error


def _tensor(field: str, value: Mapping[str, Any]) -> Tensor:
    unknown = set(value) - {"shape", "dtype", "layout"}
    if unknown or "shape" not in value or "dtype" not in value:
        raise InvalidOperatorError(
            f"{field} is no tensor.", given=dict(value), accepted="shape, dtype and, optionally, layout"
        )
    if not isinstance(value["shape"], (list, tuple)) or len(value["shape"]) > 16:
        raise InvalidOperatorError(f"{field} has no usable shape.", given=value["shape"], accepted="a list of sizes")
    return Tensor(tuple(value["shape"]), str(value["dtype"]), str(value.get("layout", "NCHW")))


def _immutable(field: str, value: Any) -> Any:
    if isinstance(value, list):
        if len(value) > 16:
            raise InvalidOperatorError(f"{field} is too long.", given=f"{len(value)} entries", accepted="at most 16")
        return tuple(value)
    return value
