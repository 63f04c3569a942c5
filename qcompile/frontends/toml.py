"""Reads operators from a TOML file.

    [[kernel]]
    name = "conv1"                        # optional; default: the operator's own name
    operator = "QuantizedLinearConvolution"
    input = {shape = [1, 64, 56, 56], dtype = "uint8"}
    filter = {shape = [64, 64, 3, 3], dtype = "int8"}
    filter_scale = "per_channel"
    output_zero_point = "none"            # TOML has no None: the tensor does not exist
    constants = "weights.npz"             # optional; a file in the folder of the TOML file, or below
    [kernel.values]                       # optional; constants written here
    input_scale = 0.02

Everything but `name`, `constants` and `values` is a field of the operator.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import InvalidTensorError, ModelError, QCompileError
from ..spec import Operator, TensorRole
from ..spec.serialization import from_dictionary
from ..spec.values import canonical_values

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Array = npt.NDArray[Any]

MAXIMUM_BYTES = 1 << 20
MAXIMUM_NAME = 200
_OWN_FIELDS = ("name", "constants", "values")


@dataclass(frozen=True, eq=False)
class NamedOperator:
    """One kernel of the file.

    Args:
        name: its name; unique in the file.
        operator: the operator.
        constants: canonical values of the tensors that are fixed.
    """

    name: str
    operator: Operator
    constants: dict[str, Array]


def read_operators(path: str | os.PathLike[str]) -> list[NamedOperator]:
    """The kernels of a TOML file, in its order.

    Raises:
        ModelError: the file cannot be read, is too large or no TOML, or its tables are not as described above.
        InvalidOperatorError, InvalidQuantizationError: an operator or a scale that is not possible.
        InvalidTensorError: constants that cannot be read or do not fit their operator.
    """
    file = Path(path)
    what = f"The file {str(file)!r}"
    entries: dict[str, NamedOperator] = {}
    try:
        for number, table in enumerate(_tables(_parse(file, what), what), 1):
            entry = _entry(table, number, file, what)
            if entry.name in entries:
                raise ModelError(
                    f"{what} has two kernels of the same name.",
                    given=repr(entry.name),
                    remedy="give each of them a `name` of its own",
                )
            entries[entry.name] = entry
    except RecursionError as error:
        raise ModelError(f"{what} is nested too deeply.", accepted="tables of operators ([[kernel]])") from error
    return list(entries.values())


def read_arrays(path: str | os.PathLike[str], what: str, tensors: Iterable[TensorRole]) -> dict[str, Array]:
    """All arrays of an .npz file, without pickled objects.

    Args:
        path: the file.
        what: names it in messages.
        tensors: whose values its arrays may be; nothing is read where there is another name, or far more bytes than
            the tensor has.

    Raises:
        InvalidTensorError: it cannot be read, is no .npz file or damaged, or has an array of another name or size.
    """
    limits = {tensor.name: 16 * tensor.elements + 65536 for tensor in tensors}
    try:
        _require_regular(Path(path))
        loaded = np.load(path, allow_pickle=False)
        if not isinstance(loaded, np.lib.npyio.NpzFile):
            raise InvalidTensorError(
                f"{what} is no .npz file.", given="a single array", accepted="named arrays, as numpy.savez writes them"
            )
        with loaded as archive:
            unknown = [name for name in archive.files if name not in limits]
            if unknown:
                raise InvalidTensorError(
                    f"{what} has an array of a name that is not known here.",
                    given=", ".join(map(repr, unknown)),
                    accepted=", ".join(limits),
                )
            for entry in archive.zip.infolist():
                limit = limits.get(entry.filename.removesuffix(".npy"), 0)
                if entry.file_size > limit:
                    raise InvalidTensorError(
                        f"{what} has an array that is far too large.",
                        given=f"{entry.filename} of {entry.file_size} bytes",
                        accepted=f"at most {limit} bytes",
                    )
            return {name: archive[name] for name in archive.files}
    except InvalidTensorError:
        raise
    # NumPy, zipfile and zlib raise errors of many types for a damaged file
    except Exception as error:
        raise InvalidTensorError(
            f"{what} cannot be read.",
            given=_reason(error),
            accepted="an .npz file as numpy.savez writes it, without Python objects",
        ) from error


def _parse(file: Path, what: str) -> dict[str, Any]:
    try:
        _require_regular(file)
        with file.open("rb") as stream:
            content = stream.read(MAXIMUM_BYTES + 1)
        if len(content) > MAXIMUM_BYTES:
            raise ModelError(
                f"{what} is too large.",
                accepted=f"at most {MAXIMUM_BYTES} bytes",
                remedy="put large constants into an .npz file",
            )
        values: dict[str, Any] = tomllib.loads(content.decode("utf-8"))
        return values
    except tomllib.TOMLDecodeError as error:
        raise ModelError(f"{what} is no TOML.", given=str(error)) from error
    except UnicodeDecodeError as error:
        raise ModelError(f"{what} is no TOML: it is not in UTF-8.", given=str(error)) from error
    except (OSError, ValueError) as error:
        if isinstance(error, ModelError):
            raise
        raise ModelError(
            f"{what} cannot be read.", given=_reason(error), accepted="the path of a .toml file with operators"
        ) from error


def _require_regular(file: Path) -> None:
    """Raises OSError for what is not a regular file: reading a pipe could wait for ever."""
    mode = file.stat().st_mode
    if not stat.S_ISREG(mode):
        raise OSError("it is a folder" if stat.S_ISDIR(mode) else "it is not a regular file")


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__


def _tables(content: Mapping[str, Any], what: str) -> list[Mapping[str, Any]]:
    unknown = [key for key in content if key != "kernel"]
    if unknown:
        raise ModelError(
            f"{what} has an unknown key.", given=", ".join(map(repr, unknown)), accepted="tables [[kernel]] alone"
        )
    tables = content.get("kernel")
    if not isinstance(tables, list) or not tables or not all(isinstance(table, Mapping) for table in tables):
        raise ModelError(
            f"{what} has no kernels.",
            given="nothing" if tables is None else f"kernel is a {type(tables).__name__}",
            accepted="one table [[kernel]] or more",
        )
    return tables


def _entry(table: Mapping[str, Any], number: int, file: Path, what: str) -> NamedOperator:
    name = table.get("name")
    where = f"{what}, kernel {number}" if name is None else f"{what}, kernel {str(name)[:MAXIMUM_NAME]!r}"
    if name is not None and not (isinstance(name, str) and name.strip() and len(name) <= MAXIMUM_NAME):
        raise ModelError(
            f"{what}, kernel {number}: the name is not usable.",
            given=repr(name)[: MAXIMUM_NAME + 20],
            accepted=f"a string of 1 to {MAXIMUM_NAME} characters that is not blank",
        )
    try:
        operator = from_dictionary(
            {field: None if value == "none" else value for field, value in table.items() if field not in _OWN_FIELDS}
        )
        constants = canonical_values(operator, _given_constants(table, operator, file))
        operator.check_values(constants)
    except QCompileError as error:
        raise type(error)(
            f"{where}: {error.problem}", given=error.given, accepted=error.accepted, remedy=error.remedy
        ) from error
    return NamedOperator(operator.name if name is None else name, operator, constants)


def _given_constants(table: Mapping[str, Any], operator: Operator, file: Path) -> dict[str, Any]:
    inline = table.get("values", {})
    if not isinstance(inline, Mapping):
        raise ModelError("values must be a table.", given=type(inline).__name__, accepted="tensor = number or list")
    if "constants" not in table:
        return dict(inline)
    arrays = read_arrays(_inside(file.parent, table["constants"]), f"The file {table['constants']!r}", operator.tensors)
    twice = [name for name in arrays if name in inline]
    if twice:
        raise InvalidTensorError("A constant is given twice.", given=", ".join(twice), accepted="in `constants` or "
                                 "in `values`")  # fmt: skip
    return {**arrays, **inline}


def _inside(folder: Path, location: Any) -> Path:
    """The file at `location` in `folder`; what leads out of the folder is refused."""
    accepted = "the path of an .npz file in the folder of the TOML file, or below"
    if not isinstance(location, str) or not location:
        raise ModelError("constants is no path.", given=repr(location), accepted=accepted)
    relative = Path(location)
    try:
        root, resolved = folder.resolve(), (folder / relative).resolve()
        with contextlib.suppress(FileNotFoundError):  # whoever reads it says so
            (folder / relative).stat()
    except (OSError, RuntimeError, ValueError) as error:  # a loop of links, or a zero byte
        raise ModelError("constants is no path.", given=f"{location!r}: {error}", accepted=accepted) from error
    if relative.is_absolute() or ".." in relative.parts or not resolved.is_relative_to(root):
        raise ModelError("constants leads out of the folder.", given=repr(location), accepted=accepted)
    return resolved
