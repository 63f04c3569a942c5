"""Loads a model: limits, checks, and the shapes of its inputs."""

from __future__ import annotations

import operator as builtin_operators
import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

from ...errors import ModelError
from .dependency import onnx_package
from .external_data import MAXIMUM_BYTES, load_external_data

if TYPE_CHECKING:
    import onnx

#: What a model may be given as: a path, the bytes of a file, or a ModelProto.
ModelSource = Union[str, "os.PathLike[str]", bytes, "onnx.ModelProto"]
#: QuantizeLinear and its kin begin here.
OLDEST_OPSET = 10
MODEL_KINDS = "the path of an .onnx file, its bytes, or an onnx.ModelProto"


def load_model(model: ModelSource, input_shapes: Mapping[str, Sequence[int]] | None = None) -> Any:
    """Returns a checked copy of the model, with all data inside and the dimensions of `input_shapes` fixed.

    The domain "ai.onnx" is written as "", which means the same.

    Args:
        model: a path, bytes or a ModelProto; a ModelProto is not changed.
        input_shapes: graph input -> its shape; the other inputs keep theirs.

    Raises:
        ModelError: a file that is missing, unreadable, too large or no ONNX model; external data outside the folder;
            a model that onnx.checker refuses or whose opset is too old; shapes that do not fit.
        MissingDependencyError: onnx is not installed.
    """
    onnx = onnx_package()
    folder: Path | None = None
    if isinstance(model, onnx.ModelProto):
        proto = onnx.ModelProto()
        proto.CopyFrom(model)
        what = "The ModelProto"
    elif isinstance(model, (str, os.PathLike)):
        path = Path(model)
        folder = path.parent
        what = f"The file {str(path)!r}"
        proto = _parse(_read(path), what)
    elif isinstance(model, (bytes, bytearray, memoryview)):
        what = "The model given as bytes"
        proto = _parse(bytes(model), what)
    else:
        raise ModelError("This is no model.", given=type(model).__name__, accepted=MODEL_KINDS)
    _require_graph(proto, what)
    load_external_data(proto, folder)
    _use_short_domain(proto)
    _check(proto, what)
    if input_shapes:
        fix_input_shapes(proto, input_shapes)
    return proto


def _read(path: Path) -> bytes:
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise ModelError(f"{str(path)!r} is a directory.", accepted="the path of an .onnx file")
        if not stat.S_ISREG(status.st_mode):
            raise ModelError(f"{str(path)!r} is not a regular file.", accepted="the path of an .onnx file")
        if status.st_size > MAXIMUM_BYTES:
            raise ModelError(
                f"The file {str(path)!r} is too large.",
                given=f"{status.st_size} bytes",
                accepted="below 2 GiB",
                remedy="is it an ONNX model? Larger ones do not exist without external data",
            )
        return path.read_bytes()
    except (OSError, ValueError) as error:
        raise ModelError(
            f"The model {str(path)!r} cannot be read.", given=str(error), accepted="the path of an .onnx file"
        ) from error


def _parse(data: bytes, what: str) -> Any:
    if not data:
        raise ModelError(f"{what} is empty.", given="0 bytes", accepted="an ONNX model")
    if len(data) > MAXIMUM_BYTES:
        raise ModelError(f"{what} is too large.", given=f"{len(data)} bytes", accepted="below 2 GiB")
    try:
        return onnx_package().ModelProto.FromString(data)
    except Exception as error:  # protobuf's DecodeError, whose place differs between its versions
        raise ModelError(
            f"{what} is no ONNX model, or a truncated one.",
            given=f"{len(data)} bytes; {error}",
            accepted="an ONNX model (a protobuf message)",
            remedy="check that the file is complete",
        ) from error


def _require_graph(model: Any, what: str) -> None:
    if not model.HasField("graph") or not model.opset_import or not model.ir_version:
        raise ModelError(
            f"{what} is no ONNX model: it has no graph, IR version or operator set.",
            accepted="an ONNX model",
            remedy="check that the file is complete",
        )


def _use_short_domain(model: Any) -> None:
    """Writes the domain "ai.onnx" as "", the only spelling that onnx.checker knows."""
    for entry in (*model.opset_import, *(entry for function in model.functions for entry in function.opset_import)):
        if entry.domain == "ai.onnx":
            entry.domain = ""
    for node in _all_nodes((model.graph, *model.functions)):
        if node.domain == "ai.onnx":
            node.domain = ""


def _all_nodes(graphs: Iterable[Any]) -> Iterable[Any]:
    for graph in graphs:
        for node in graph.node:
            yield node
            for attribute in node.attribute:
                yield from _all_nodes((*attribute.graphs, *((attribute.g,) if attribute.HasField("g") else ())))


def _check(model: Any, what: str) -> None:
    onnx = onnx_package()
    opset = default_opset(model)
    newest = onnx.defs.onnx_opset_version()
    if opset is not None and not OLDEST_OPSET <= opset <= newest:
        raise ModelError(
            f"{what} uses an operator set that is not supported.",
            given=f"opset {opset}",
            accepted=f"opset {OLDEST_OPSET} to {newest}",
            remedy="convert it with onnx.version_converter" if opset < OLDEST_OPSET else "install a newer onnx",
        )
    values = [value.type for value in (*model.graph.input, *model.graph.output)]
    unranked = [of.tensor_type for of in values if of.HasField("tensor_type") and not of.tensor_type.HasField("shape")]
    for tensor_type in unranked:  # the checker insists on a shape; onnxruntime and shape inference do not
        tensor_type.shape.SetInParent()
    try:
        onnx.checker.check_model(model)
    except Exception as error:  # ValidationError, or what the serialization of a broken message raises
        raise ModelError(f"{what} is refused by onnx.checker.", given=str(error).strip()) from error
    for tensor_type in unranked:
        tensor_type.ClearField("shape")


def default_opset(model: Any) -> int | None:
    """The version of ONNX's own operator set, or None where the model uses none."""
    return next((int(entry.version) for entry in model.opset_import if entry.domain == ""), None)


def fix_input_shapes(model: Any, input_shapes: Mapping[str, Sequence[int]]) -> None:
    """Gives graph inputs their shapes, in place; equal symbols of other values get the same number.

    Raises:
        ModelError: an unknown name, a wrong rank, a size below 1, or one that contradicts the model.
    """
    inputs = {value.name: value for value in model.graph.input}
    symbols: dict[str, int] = {}
    for name, sizes in input_shapes.items():
        if name not in inputs:
            raise ModelError(
                f"The model has no input {name!r}.", given=repr(name), accepted=", ".join(map(repr, inputs))
            )
        _fix_one(inputs[name], _sizes(name, sizes), symbols)
    for value in (*model.graph.input, *model.graph.output, *model.graph.value_info):
        for dimension in value.type.tensor_type.shape.dim if value.type.HasField("tensor_type") else ():
            if dimension.dim_param in symbols:
                dimension.dim_value = symbols[dimension.dim_param]


def _sizes(name: str, sizes: Sequence[int]) -> tuple[int, ...]:
    try:
        shape = tuple(builtin_operators.index(size) for size in sizes)
    except TypeError as error:
        raise ModelError(
            f"The shape of input {name!r} is no sequence of integers.", given=repr(sizes), accepted="(1, 3, 224, 224)"
        ) from error
    if any(not 1 <= size < 2**31 for size in shape):
        raise ModelError(f"The shape of input {name!r} has a bad size.", given=shape, accepted="sizes from 1")
    return shape


def _fix_one(value: Any, shape: tuple[int, ...], symbols: dict[str, int]) -> None:
    name = value.name
    if not value.type.HasField("tensor_type"):
        raise ModelError(f"Input {name!r} is no tensor and has no shape.", given=shape)
    tensor_type = value.type.tensor_type
    if not tensor_type.HasField("shape"):
        for size in shape:
            tensor_type.shape.dim.add().dim_value = size
        tensor_type.shape.SetInParent()
        return
    dimensions = tensor_type.shape.dim
    declared = "(" + ", ".join(map(str, declared_sizes(value) or ())) + ")"
    if len(dimensions) != len(shape):
        raise ModelError(
            f"The shape of input {name!r} has the wrong number of axes.",
            given=shape,
            accepted=f"{len(dimensions)} axes, {declared}",
        )
    for dimension, size in zip(dimensions, shape, strict=True):
        if dimension.dim_value > 0 and dimension.dim_value != size:
            raise ModelError(
                f"The shape of input {name!r} contradicts the model.", given=shape, accepted=f"a shape like {declared}"
            )
        symbol = dimension.dim_param
        if symbol and symbols.setdefault(symbol, size) != size:
            raise ModelError(
                f"The shapes give two sizes to the dimension {symbol!r}.",
                given=f"{symbols[symbol]} and {size}",
                accepted="one size",
            )
        dimension.dim_value = size


def declared_sizes(value: Any) -> tuple[int | str, ...] | None:
    """The sizes of a ValueInfoProto; a symbol or "?" where one is unknown; None without a rank."""
    if not value.type.HasField("tensor_type") or not value.type.tensor_type.HasField("shape"):
        return None
    return tuple(
        dimension.dim_value
        if dimension.HasField("dim_value") and dimension.dim_value >= 0
        else dimension.dim_param or "?"
        for dimension in value.type.tensor_type.shape.dim
    )


def dynamic_inputs(model: Any) -> dict[str, tuple[int | str, ...]]:
    """Graph input -> its sizes, for the tensors among them with an unknown size or rank (then it is ())."""
    initializers = {tensor.name for tensor in model.graph.initializer}
    found: dict[str, tuple[int | str, ...]] = {}
    for value in model.graph.input:
        sizes = declared_sizes(value)
        unknown = sizes is None or any(isinstance(size, str) for size in sizes)
        if unknown and value.name not in initializers and value.type.HasField("tensor_type"):
            found[value.name] = sizes or ()
    return found


def unknown_shape(name: str, dynamic: Mapping[str, tuple[int | str, ...]]) -> ModelError:
    """The error for a tensor `name` whose shape depends on the inputs `dynamic`."""
    declared = "; ".join(f"{key} ({', '.join(map(str, sizes)) or 'unknown rank'})" for key, sizes in dynamic.items())
    example = {key: tuple(1 if isinstance(size, str) else size for size in sizes) for key, sizes in dynamic.items()}
    options = " ".join(f"--input-shape {key}={','.join(map(str, sizes))}" for key, sizes in example.items())
    return ModelError(
        f"The shape of {name!r} is not known, because the model has inputs of unknown size.",
        given=declared,
        accepted="fixed shapes",
        remedy=f"fix them: input_shapes={example}, or on the command line {options} (with your sizes)",
    )
