"""Turns the suites of tests/data/conformance into cases: an operator, its values and the expected outputs.

A suite is NAME.npz with arrays and NAME.json, whose "cases" name the arrays of their inputs and outputs. The suite
`real_models` holds whole models and has no cases here.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from qcompile.spec import (
    ConvolutionInteger,
    DequantizeLinear,
    DynamicQuantizeLinear,
    MatrixMultiplyInteger,
    Operator,
    QuantizedLinearConvolution,
    QuantizedLinearMatrixMultiply,
    QuantizeLinear,
    QuantizeV2,
    Tensor,
)
from qcompile.spec.tensor import DTYPE_CODES

Array = npt.NDArray[Any]
Entry = dict[str, Any]

DATA = Path(__file__).parents[1] / "data" / "conformance"
SUITES = (
    "onnx_node",
    "onnx_node_other",
    "ort_conv",
    "ort_matmul",
    "ort_misc",
    "ort_deviations",
    "ort_real_layers",
    "tf_quantize_v2",
)


@dataclass(frozen=True, eq=False)
class Case:
    """One computation with its known result.

    Args:
        suite, id: where it comes from.
        operator: the operator, with granularities as the parameters' shapes ask for them.
        values: its tensors by name, in shapes that `canonical_values` accepts.
        expected: the outputs by name.
        note: what is special about it, or "".
        path_dependent: flat indices of the first output that the other system itself does not compute reliably.
    """

    suite: str
    id: str
    operator: Operator
    values: dict[str, Array]
    expected: dict[str, Array]
    note: str = ""
    path_dependent: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"{self.suite}-{self.id}"


@dataclass(frozen=True, eq=False)
class ErrorCase:
    """A QuantizeV2 that TensorFlow refuses; `fields` are QuantizeV2's, `message` is TensorFlow's."""

    suite: str
    id: str
    fields: dict[str, Any]
    values: dict[str, Array]
    message: str

    def __str__(self) -> str:
        return f"{self.suite}-{self.id}"


@dataclass(frozen=True)
class ForeignCase:
    """A case of a suite that no operator of ours describes."""

    suite: str
    id: str
    operator: str
    reason: str


#: ONNX's operators -> our names of their inputs, in ONNX's order.
_INPUTS = {
    "QLinearConv": (
        "input", "input_scale", "input_zero_point", "filter", "filter_scale", "filter_zero_point",
        "output_scale", "output_zero_point", "bias",
    ),
    "QLinearMatMul": (
        "a", "a_scale", "a_zero_point", "b", "b_scale", "b_zero_point", "output_scale", "output_zero_point",
    ),
    "ConvInteger": ("input", "filter", "input_zero_point", "filter_zero_point"),
    "MatMulInteger": ("a", "b", "a_zero_point", "b_zero_point"),
    "QuantizeLinear": ("input", "scale", "zero_point"),
    "DequantizeLinear": ("input", "scale", "zero_point"),
    "DynamicQuantizeLinear": ("input",),
    "QGemm": (
        "a", "a_scale", "a_zero_point", "b", "b_scale", "b_zero_point", "bias", "output_scale", "output_zero_point",
    ),
    "QuantizeV2": ("input", "min_range", "max_range"),
}  # fmt: skip
#: names of the manifests with named inputs -> ours.
_NAMES = {
    "x": "input",
    "x_scale": "input_scale",
    "x_zero_point": "input_zero_point",
    "w": "filter",
    "w_scale": "filter_scale",
    "w_zero_point": "filter_zero_point",
    "y_scale": "output_scale",
    "y_zero_point": "output_zero_point",
}


def cases(suite: str) -> list[Case]:
    """All cases of a suite that one of our operators describes."""
    return [case for case in _read(suite) if isinstance(case, Case)]


def all_cases() -> list[Case]:
    """The cases of all suites."""
    return [case for suite in SUITES for case in cases(suite)]


def error_cases() -> list[ErrorCase]:
    """What TensorFlow refuses."""
    return [case for suite in SUITES for case in _read(suite) if isinstance(case, ErrorCase)]


def foreign_cases() -> list[ForeignCase]:
    """The cases that are left out, with the reason."""
    return [case for suite in SUITES for case in _read(suite) if isinstance(case, ForeignCase)]


@cache
def _read(suite: str) -> tuple[Case | ErrorCase | ForeignCase, ...]:
    manifest = json.loads((DATA / f"{suite}.json").read_text())
    with np.load(DATA / f"{suite}.npz") as archive:
        arrays = {key: archive[key] for key in archive.files}
    return tuple(_case(suite, entry, arrays) for entry in manifest["cases"])


def _case(suite: str, entry: Entry, arrays: dict[str, Array]) -> Case | ErrorCase | ForeignCase:
    kind = _kind(entry)
    reason = _foreign_reason(kind, entry)
    if reason:
        return ForeignCase(suite, entry["id"], kind, reason)
    values = {name: arrays[described["key"]] for name, described in _inputs(kind, entry).items()}
    attributes = entry["attributes"] or {}
    if kind == "QuantizeV2" and entry["status"] == "error":
        fields = _quantize_v2_fields(values, attributes)
        return ErrorCase(suite, entry["id"], fields, values, entry["message"])
    outputs = [arrays[described["key"]] for described in _outputs(entry)]
    operator, values = _BUILDERS[kind](values, attributes, outputs[0])
    # further outputs in a manifest are what the other system gave instead of the exact ones
    expected = {tensor.name: array for tensor, array in zip(operator.outputs, outputs, strict=False)}
    return Case(suite, entry["id"], operator, values, expected, _note(entry), tuple(entry.get("path_dependent", ())))


def _kind(entry: Entry) -> str:
    if isinstance(entry["op"], str):
        return entry["op"]
    # a list of nodes: the operator as ONNX's function of smaller operators, with the same inputs and outputs
    return "DynamicQuantizeLinear" if "dynamicquantizelinear" in entry["id"] else "+".join(entry["op"])


def _foreign_reason(kind: str, entry: Entry) -> str | None:
    if kind not in _BUILDERS:
        return f"{kind} is not among our operators"
    described = [*_inputs(kind, entry).values(), *_outputs(entry)]
    dtypes = {item["dtype"] for item in described} - set(DTYPE_CODES)
    if dtypes and entry.get("status") != "error":
        return f"{', '.join(sorted(dtypes))} is not among our types"
    return None


def _inputs(kind: str, entry: Entry) -> dict[str, Entry]:
    inputs = entry["inputs"]
    named: list[tuple[str, Any]]
    if isinstance(inputs, dict):
        named = [(_NAMES.get(str(name), str(name)), described) for name, described in inputs.items()]
    else:
        named = list(zip(_INPUTS[kind], inputs, strict=False))
    assert {name for name, _ in named} <= set(_INPUTS[kind]), (entry["id"], named)
    return {name: described for name, described in named if described is not None}


def _outputs(entry: Entry) -> list[Entry]:
    if "exact" in entry:
        return [entry["exact"]]
    outputs = entry.get("outputs", [entry["output"]] if "output" in entry else [])
    return list(outputs.values()) if isinstance(outputs, dict) else list(outputs)


def _note(entry: Entry) -> str:
    if entry.get("family") == "int32_overflow":
        return f"informative (int32_wrap): {entry['why']}"
    return entry.get("note") or entry.get("why") or ""


def _tensor(array: Array) -> Tensor:
    return Tensor(array.shape, str(array.dtype))


def _granularity(values: dict[str, Array], name: str, vector: str) -> str | None:
    """None where the parameter is missing, "per_tensor" for one element, else the operator's word for a vector."""
    if name not in values:
        return None
    return "per_tensor" if values[name].size == 1 else vector


Built = tuple[Operator, dict[str, Array]]


def _geometry(values: dict[str, Array], attributes: Entry) -> dict[str, Any]:
    pads = attributes.get("pads")
    return {
        "input": _tensor(values["input"]),
        "filter": _tensor(values["filter"]),
        "strides": attributes.get("strides"),
        "dilations": attributes.get("dilations"),
        "start_padding": pads[: len(pads) // 2] if pads else None,
        "end_padding": pads[len(pads) // 2 :] if pads else None,
        "group_count": attributes.get("group", 1),
        "input_zero_point": _granularity(values, "input_zero_point", "per_tensor"),
        "filter_zero_point": _granularity(values, "filter_zero_point", "per_channel"),
    }


def _quantized_convolution(values: dict[str, Array], attributes: Entry, output: Array) -> Built:
    return QuantizedLinearConvolution(
        **_geometry(values, attributes),
        output_dtype=str(output.dtype),
        bias="bias" in values,
        filter_scale=str(_granularity(values, "filter_scale", "per_channel")),
        output_zero_point=_granularity(values, "output_zero_point", "per_tensor"),
    ), values


def _integer_convolution(values: dict[str, Array], attributes: Entry, output: Array) -> Built:
    return ConvolutionInteger(**_geometry(values, attributes)), values


def _quantized_product(values: dict[str, Array], attributes: Entry, output: Array) -> Built:
    return QuantizedLinearMatrixMultiply(
        a=_tensor(values["a"]),
        b=_tensor(values["b"]),
        output_dtype=str(output.dtype),
        bias="bias" in values,
        a_scale=str(_granularity(values, "a_scale", "per_row")),
        a_zero_point=_granularity(values, "a_zero_point", "per_row"),
        b_scale=str(_granularity(values, "b_scale", "per_column")),
        b_zero_point=_granularity(values, "b_zero_point", "per_column"),
        output_scale=str(_granularity(values, "output_scale", "per_row")),
        output_zero_point=_granularity(values, "output_zero_point", "per_row"),
    ), values


def _gemm(values: dict[str, Array], attributes: Entry, output: Array) -> Built:
    """QGemm as a product: b transposed beforehand, alpha folded into a_scale."""
    changed = dict(values)
    assert not attributes.get("transA", 0)
    if attributes.get("transB", 0):
        changed["b"] = np.ascontiguousarray(values["b"].T)
    changed["a_scale"] = np.asarray(np.float32(attributes.get("alpha", 1.0)) * values["a_scale"], np.float32)
    return _quantized_product(changed, attributes, output)


def _integer_product(values: dict[str, Array], attributes: Entry, output: Array) -> Built:
    return MatrixMultiplyInteger(
        a=_tensor(values["a"]),
        b=_tensor(values["b"]),
        a_zero_point=_granularity(values, "a_zero_point", "per_row"),
        b_zero_point=_granularity(values, "b_zero_point", "per_column"),
    ), values


def _quantize(values: dict[str, Array], attributes: Entry, output: Array) -> Built:
    return QuantizeLinear(
        _tensor(values["input"]), output_dtype=str(output.dtype), **_per_axis(values, attributes)
    ), values


def _dequantize(values: dict[str, Array], attributes: Entry, output: Array) -> Built:
    return DequantizeLinear(_tensor(values["input"]), **_per_axis(values, attributes)), values


def _per_axis(values: dict[str, Array], attributes: Entry) -> dict[str, Any]:
    return {
        "scale": _granularity(values, "scale", "per_axis"),
        "zero_point": _granularity(values, "zero_point", "per_axis"),
        "axis": attributes.get("axis", 1),
    }


def _dynamic(values: dict[str, Array], attributes: Entry, output: Array) -> Built:
    return DynamicQuantizeLinear(_tensor(values["input"])), values


def _quantize_v2(values: dict[str, Array], attributes: Entry, output: Array) -> Built:
    fields = _quantize_v2_fields(values, attributes)
    input_fields = fields.pop("input")
    return QuantizeV2(Tensor(**input_fields), **fields), values


def _quantize_v2_fields(values: dict[str, Array], attributes: Entry) -> dict[str, Any]:
    """The fields of QuantizeV2; `input` as the fields of a Tensor, since it may be a refused one."""
    fields = {name: value for name, value in attributes.items() if name != "T"}
    dtype = attributes["T"].replace("qu", "u").replace("q", "")
    return {
        "input": {"shape": values["input"].shape, "dtype": str(values["input"].dtype)},
        "output_dtype": dtype,
        **fields,
    }


_BUILDERS: dict[str, Callable[[dict[str, Array], Entry, Array], Built]] = {
    "QLinearConv": _quantized_convolution,
    "ConvInteger": _integer_convolution,
    "QLinearMatMul": _quantized_product,
    "QGemm": _gemm,
    "MatMulInteger": _integer_product,
    "QuantizeLinear": _quantize,
    "DequantizeLinear": _dequantize,
    "DynamicQuantizeLinear": _dynamic,
    "QuantizeV2": _quantize_v2,
}
