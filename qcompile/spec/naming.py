"""Names of kernels: a grammar, written and parsed by the same tables.

    name        = family "_" types "__" dimensions [ "_" attribute ]*
    family      = "qconv" | "iconv" | "qmatmul" | "imatmul" | "requantize" | "quantize" | "dequantize"
                | "dynamicquantize" | "quantizev2"
    types       = operand [ "_" operand ]*          input, filter, output; or a, b, output
    operand     = dtype [ granularity granularity ] of its scale and zero point; "tt" is left out
    dtype       = "s8" | "u8" | "s16" | "u16" | "s32" | "f16" | "f32"
    granularity = "t" per tensor | "c" per channel or column | "r" per row | "a" per axis | "n" does not exist
    dimensions  = convolution:  n1c64h56w56_o64k3x3 (NCHW) or n1h56w56c64_o64k3x3 (NHWC); without h: 1-D
                | product:      m128n256k512, with the batch axes of a and b in front: x2x3_y1x3_m4n5k6
                | elementwise:  1x64x56x56, or "scalar"
    attribute   = "bias" | "stride" pair | "pad" starts and ends | "dilate" pair | "group" count
                | "clamp" minimum "to" maximum | "axis" number | "precision" dtype | mode, rounding, ... of QuantizeV2

Attributes with their default value are left out. In numbers "m" stands for minus and "p" for the point, so that a
name is an identifier of C and a file name: `qconv_u8_s8ct_u8__n1c64h56w56_o64k3x3_pad1x1x1x1_bias`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from ..errors import InvalidOperatorError
from .convolution import Convolution
from .matrix_multiply import MatrixMultiply
from .operator import Operator
from .quantize_v2 import QuantizeV2
from .serialization import OPERATORS
from .tensor import DTYPE_CODES, Tensor

_DTYPES = {code: dtype for dtype, code in DTYPE_CODES.items()}
_GRANULARITIES = {"t": "per_tensor", "c": "per_channel", "r": "per_row", "a": "per_axis", "n": None}
_LETTERS = {"per_tensor": "t", "per_channel": "c", "per_column": "c", "per_row": "r", "per_axis": "a", None: "n"}
#: family -> for each operand: (field of its dtype, field of its scale, field of its zero point); "" has no field.
_OPERANDS: dict[str, list[tuple[str, str, str]]] = {
    "qconv": [
        ("input", "", "input_zero_point"),
        ("filter", "filter_scale", "filter_zero_point"),
        ("output_dtype", "", "output_zero_point"),
    ],
    "iconv": [("input", "", "input_zero_point"), ("filter", "", "filter_zero_point")],
    "qmatmul": [
        ("a", "a_scale", "a_zero_point"),
        ("b", "b_scale", "b_zero_point"),
        ("output_dtype", "output_scale", "output_zero_point"),
    ],
    "imatmul": [("a", "", "a_zero_point"), ("b", "", "b_zero_point")],
    "requantize": [("input", "input_scale", ""), ("output_dtype", "output_scale", "output_zero_point")],
    "quantize": [("input", "", ""), ("output_dtype", "scale", "zero_point")],
    "dequantize": [("input", "scale", "zero_point"), ("output_dtype", "", "")],
    "dynamicquantize": [("input", "", "")],
    "quantizev2": [("input", "", ""), ("output_dtype", "", "")],
}
_CLASSES = {operator.family: operator for operator in OPERATORS}


def _number(value: float) -> str:
    return repr(value).replace("-", "m").replace(".", "p").replace("+", "")


def _parse_float(text: str) -> float:
    return float(text.replace("m", "-").replace("p", "."))


def _integers(values: Any) -> str:
    return "x".join(map(str, values))


def _parse_integers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("x"))


def _clamp(value: tuple[int, int]) -> str:
    return f"{_number(value[0])}to{_number(value[1])}"


def _parse_clamp(text: str) -> tuple[int, int]:
    low, high = text.split("to")
    return int(low.replace("m", "-")), int(high.replace("m", "-"))


#: word -> (field, writer, parser). A word is written where the field has another value than its default.
_ATTRIBUTES: dict[str, tuple[str, Callable[[Any], str], Callable[[str], Any]]] = {
    "stride": ("strides", _integers, _parse_integers),
    "pad": ("padding", _integers, _parse_integers),
    "dilate": ("dilations", _integers, _parse_integers),
    "group": ("group_count", str, int),
    "bias": ("bias", lambda value: "", lambda text: True),
    "clamp": ("activation", _clamp, _parse_clamp),
    "axis": ("axis", str, int),
    "precision": ("precision", DTYPE_CODES.__getitem__, _DTYPES.__getitem__),
    "mode": ("mode", lambda value: value.lower().replace("_", ""), {"minfirst": "MIN_FIRST", "scaled": "SCALED"}.get),
    "even": ("round_mode", lambda value: "", lambda text: "HALF_TO_EVEN"),
    "narrow": ("narrow_range", lambda value: "", lambda text: True),
    "range": ("ensure_minimum_range", _number, _parse_float),
}


def operator_name(operator: Operator) -> str:
    """The name of the operator's kernel."""
    types = "_".join(_operand(operator, *fields) for fields in _OPERANDS[operator.family])
    words = [f"{word}{write(value)}" for word, (field, write, _) in _ATTRIBUTES.items()
             if (value := _attribute(operator, field)) is not None]  # fmt: skip
    return "_".join([f"{operator.family}_{types}_", _dimensions(operator), *words])


def _operand(operator: Operator, dtype_field: str, scale_field: str, zero_point_field: str) -> str:
    value = getattr(operator, dtype_field)
    code = DTYPE_CODES[value.dtype if isinstance(value, Tensor) else value]
    letters = "".join(_LETTERS[getattr(operator, field)] if field else "t" for field in (scale_field, zero_point_field))
    return code if letters == "tt" else code + letters


def _attribute(operator: Operator, field: str) -> Any:
    """The field's value, or None where it is the default (or the operator lacks it)."""
    if field == "padding":
        if not isinstance(operator, Convolution):
            return None
        padding = (*(operator.start_padding or ()), *(operator.end_padding or ()))
        return padding if any(padding) else None
    value = getattr(operator, field, None)
    if field in ("strides", "dilations"):
        return value if value is not None and any(entry != 1 for entry in value) else None
    if field == "axis" and not isinstance(operator, QuantizeV2):
        per_axis = "per_axis" in (getattr(operator, name, None) for names in _OPERANDS[operator.family]
                                  for name in names[1:] if name)  # fmt: skip
        return value if per_axis else None
    if field == "precision":
        return None if value is None or value == operator.input.dtype else value  # type: ignore[attr-defined]
    defaults = {"group_count": 1, "axis": -1, "mode": "MIN_COMBINED", "round_mode": "HALF_AWAY_FROM_ZERO",
                "ensure_minimum_range": 0.01, "bias": False, "narrow_range": False}  # fmt: skip
    return None if value == defaults.get(field) else value


def _dimensions(operator: Operator) -> str:
    if isinstance(operator, Convolution):
        spatial = "".join(f"{letter}{size}" for letter, size in zip("hw"[-operator.spatial_rank :],
                          operator.input_spatial, strict=True))  # fmt: skip
        channels = f"c{operator.channels}"
        inner = spatial + channels if operator.channels_last else channels + spatial
        return f"n{operator.batch}{inner}_o{operator.output_channels}k{_integers(operator.filter_spatial)}"
    if isinstance(operator, MatrixMultiply):
        batches = [
            letter + _integers(tensor.shape[:-2]) + "_"
            for letter, tensor in (("x", operator.a), ("y", operator.b))
            if len(tensor.shape) > 2
        ]
        return f"{''.join(batches)}m{operator.rows}n{operator.columns}k{operator.depth}"
    shape = operator.input.shape  # type: ignore[attr-defined]
    return _integers(shape) if shape else "scalar"


_CONVOLUTION = re.compile(r"n(\d+)((?:c\d+)?)((?:h\d+)?)w(\d+)((?:c\d+)?)_o(\d+)k(\d+(?:x\d+)?)")
_PRODUCT = re.compile(r"(?:x(\d+(?:x\d+)*)_)?(?:y(\d+(?:x\d+)*)_)?m(\d+)n(\d+)k(\d+)")
_ELEMENTWISE = re.compile(r"scalar|\d+(?:x\d+)*")
_WORD = re.compile(r"([a-z]+?)((?:m?\d.*)?|minfirst|scaled|f\d+)")


def parse(name: str) -> Operator:
    """The operator of a kernel's name: `parse(operator.name) == operator`.

    Raises:
        InvalidOperatorError: a name that the grammar does not produce.
    """
    try:
        operator = _parse(name)
    except (ValueError, KeyError, TypeError, ArithmeticError) as error:
        raise _not_a_name(name) from error
    if operator.name != name:
        raise _not_a_name(name)
    return operator


def _not_a_name(name: str) -> InvalidOperatorError:
    return InvalidOperatorError(
        "This is no kernel name.", given=repr(name), accepted="the grammar of qcompile.spec.naming"
    )


def _parse(name: str) -> Operator:
    head, _, tail = name.partition("__")
    family, *codes = head.split("_")
    operands = _OPERANDS[family]
    if len(codes) != len(operands):
        raise ValueError(name)
    arguments: dict[str, Any] = {}
    for code, (dtype_field, scale_field, zero_point_field) in zip(codes, operands, strict=True):
        match = re.fullmatch(r"([sfu]\d+)([tcran]{2})?", code)
        if match is None:
            raise ValueError(code)
        arguments[dtype_field] = _DTYPES[match[1]]
        for field, letter in zip((scale_field, zero_point_field), match[2] or "tt", strict=True):
            if field:
                granularity = _GRANULARITIES[letter]
                is_column = family.endswith("matmul") and granularity == "per_channel"
                arguments[field] = "per_column" if is_column else granularity
    if family.endswith("conv"):
        words = _parse_convolution(tail, arguments)
    elif family.endswith("matmul"):
        words = _parse_product(tail, arguments)
    else:
        match = _ELEMENTWISE.match(tail)
        if match is None:
            raise ValueError(tail)
        shape = () if match[0] == "scalar" else _parse_integers(match[0])
        arguments["input"] = Tensor(shape, arguments["input"])
        words = tail[match.end() :]
    for word in filter(None, words.split("_")):
        match = _WORD.fullmatch(word)
        if match is None:
            raise ValueError(word)
        field, _, read = _ATTRIBUTES[match[1]]
        arguments[field] = read(match[2])
    padding = arguments.pop("padding", None)
    if padding is not None:
        arguments["start_padding"] = padding[: len(padding) // 2]
        arguments["end_padding"] = padding[len(padding) // 2 :]
    return _CLASSES[family](**arguments)


def _parse_convolution(tail: str, arguments: dict[str, Any]) -> str:
    match = _CONVOLUTION.match(tail)
    if match is None or bool(match[2]) == bool(match[5]):
        raise ValueError(tail)
    batch, channels_first, height, width, channels_last, outputs, kernel = match.groups()
    channels = int((channels_first or channels_last)[1:])
    spatial = (*((int(height[1:]),) if height else ()), int(width))
    group = re.search(r"_group(\d+)(?:_|$)", tail)
    filter_channels = channels // (int(group[1]) if group else 1)
    filter_spatial = _parse_integers(kernel)
    if channels_last:
        shapes = (int(batch), *spatial, channels), (int(outputs), *filter_spatial, filter_channels)
    else:
        shapes = (int(batch), channels, *spatial), (int(outputs), filter_channels, *filter_spatial)
    layout = "NHWC" if channels_last else "NCHW"
    for field, shape in zip(("input", "filter"), shapes, strict=True):
        arguments[field] = Tensor(shape, arguments[field], layout)
    return tail[match.end() :]


def _parse_product(tail: str, arguments: dict[str, Any]) -> str:
    match = _PRODUCT.match(tail)
    if match is None:
        raise ValueError(tail)
    a_batch, b_batch = (_parse_integers(text) if text else () for text in match.group(1, 2))
    rows, columns, depth = (int(text) for text in match.group(3, 4, 5))
    arguments["a"] = Tensor((*a_batch, rows, depth), arguments["a"])
    arguments["b"] = Tensor((*b_batch, depth, columns), arguments["b"])
    return tail[match.end() :]
