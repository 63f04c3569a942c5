"""Tensors whose data lie beside the model: checked all, before any of them is read."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import ModelError
from .dependency import onnx_package

#: A protobuf message, and so a model with all its tensors, cannot be larger.
MAXIMUM_BYTES = 2**31 - 1


@dataclass(frozen=True)
class _Piece:
    """Where the data of one tensor lie: `length` bytes from `offset` of a file."""

    tensor: Any
    file: Path
    offset: int
    length: int


def load_external_data(model: Any, folder: Path | None) -> None:
    """Moves the data of all external tensors of the ModelProto `model` into it.

    Args:
        model: changed in place.
        folder: where the model lies; None where it has no file.

    Raises:
        ModelError: a location that is absolute or leaves the folder (also through a symbolic link), a file that is
            missing or too short, or more than 2 GiB in all. Nothing has been read then.
    """
    external = [tensor for tensor in all_tensors(model) if tensor.data_location == onnx_package().TensorProto.EXTERNAL]
    if external and folder is None:
        raise ModelError(
            "The model keeps tensors in other files, but was not given as a file.",
            given=f"tensor {external[0].name!r} in an external file",
            accepted="the path of the model, or a model with its data loaded (onnx.load does so)",
        )
    pieces = [_locate(tensor, folder) for tensor in external if folder is not None]
    total = sum(piece.length for piece in pieces)
    if total > MAXIMUM_BYTES:
        raise ModelError("The model's external data are too large.", given=f"{total} bytes", accepted="below 2 GiB")
    for piece in pieces:
        try:
            with piece.file.open("rb") as file:
                file.seek(piece.offset)
                data = file.read(piece.length)
        except OSError as error:
            raise _refused(piece.tensor, "cannot be read", given=str(error)) from error
        piece.tensor.raw_data = data
        piece.tensor.ClearField("data_location")
        del piece.tensor.external_data[:]


def all_tensors(model: Any) -> Iterator[Any]:
    """Every TensorProto of a ModelProto: initializers and attributes, in subgraphs and functions too."""
    yield from _graph_tensors(model.graph)
    for function in model.functions:
        for node in function.node:
            yield from _node_tensors(node)
    for training in model.training_info:
        yield from _graph_tensors(training.initialization)
        yield from _graph_tensors(training.algorithm)


def _graph_tensors(graph: Any) -> Iterator[Any]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    for node in graph.node:
        yield from _node_tensors(node)


def _node_tensors(node: Any) -> Iterator[Any]:
    for attribute in node.attribute:
        if attribute.HasField("t"):
            yield attribute.t
        yield from attribute.tensors
        for sparse in (
            *attribute.sparse_tensors,
            *((attribute.sparse_tensor,) if attribute.HasField("sparse_tensor") else ()),
        ):
            yield from (sparse.values, sparse.indices)
        for graph in (*attribute.graphs, *((attribute.g,) if attribute.HasField("g") else ())):
            yield from _graph_tensors(graph)


def _locate(tensor: Any, folder: Path) -> _Piece:
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    parts = re.split(r"[/\\]", location)
    if not location or "\0" in location:
        raise _refused(tensor, "names no file", given=repr(location))
    if location[0] in "/\\" or re.match(r"[A-Za-z]:", location):
        raise _refused(tensor, "is at an absolute path", given=repr(location))
    if ".." in parts:
        raise _refused(tensor, "is outside the model's folder", given=repr(location))
    root = Path(os.path.realpath(folder))
    file = Path(os.path.realpath(root / location))
    if not file.is_relative_to(root):
        raise _refused(tensor, "is outside the model's folder", given=f"{location!r}, a symbolic link to {file}")
    try:
        status = file.stat()
    except OSError as error:
        raise _refused(tensor, "is missing", given=f"{location!r} in {folder}: {error.strerror}") from error
    if not stat.S_ISREG(status.st_mode):
        raise _refused(tensor, "is not a regular file", given=repr(location))
    offset = _bytes_entry(tensor, entries, "offset", 0)
    length = _bytes_entry(tensor, entries, "length", max(status.st_size - offset, 0))
    if offset + length > status.st_size:
        raise _refused(
            tensor,
            "is too short",
            given=f"{location!r} of {status.st_size} bytes; bytes {offset} to {offset + length} are needed",
        )
    return _Piece(tensor, file, offset, length)


def _bytes_entry(tensor: Any, entries: dict[str, str], key: str, default: int) -> int:
    text = entries.get(key, "")
    if not text:
        return default
    if not re.fullmatch(r"[0-9]{1,18}", text):
        raise _refused(tensor, f"has a bad {key}", given=repr(text))
    return int(text)


def _refused(tensor: Any, problem: str, given: str) -> ModelError:
    return ModelError(
        f"The external file of tensor {tensor.name!r} {problem}.",
        given=given,
        accepted="a file inside the folder of the model",
        remedy="put the file beside the model, or save the model again with its data inside",
    )
