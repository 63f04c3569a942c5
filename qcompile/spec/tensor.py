"""Tensor descriptions: shape, dtype, layout and the part a tensor plays in an operator."""

from __future__ import annotations

import math
import operator as builtin_operators
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ..errors import InvalidOperatorError, InvalidTensorError

#: dtype -> code in kernel names.
DTYPE_CODES = {
    "int8": "s8",
    "uint8": "u8",
    "int16": "s16",
    "uint16": "u16",
    "int32": "s32",
    "float16": "f16",
    "float32": "f32",
}
LAYOUTS = ("NCHW", "NHWC")
CODE_DTYPES = ("int8", "uint8")
#: dtype -> (minimum, maximum) of the integer types.
INTEGER_RANGES = {
    "int8": (-128, 127),
    "uint8": (0, 255),
    "int16": (-32768, 32767),
    "uint16": (0, 65535),
    "int32": (-(2**31), 2**31 - 1),
}
MAXIMUM_RANK = 8
#: Offsets inside a tensor are 32-bit integers in the generated code.
MAXIMUM_ELEMENTS = 2**31 - 1


def integer_tuple(value: Any, what: str) -> tuple[int, ...]:
    """Turns an iterable of integers (NumPy's too) into a tuple of int, or says which `what` is wrong."""
    try:
        return tuple(builtin_operators.index(entry) for entry in value)
    except TypeError as error:
        raise InvalidOperatorError(f"{what} must be a sequence of integers.", given=repr(value)) from error


@dataclass(frozen=True)
class Tensor:
    """A tensor of an operator.

    Args:
        shape: sizes; (N, C, spatial...) or (N, spatial..., C) for convolutions. 0 is allowed for the operators on
            single elements only.
        dtype: the element type: NumPy's name of it, or a NumPy dtype or scalar type.
        layout: "NCHW" (default) or "NHWC"; it has a meaning for the tensors of convolutions only, and stands for
            (N, C, W) or (N, W, C) in a one-dimensional one.

    Raises:
        InvalidTensorError: a negative size, too many axes or elements, an unknown dtype or layout.
    """

    shape: tuple[int, ...]
    dtype: str
    layout: str = "NCHW"

    def __post_init__(self) -> None:
        try:
            shape = integer_tuple(self.shape, "A tensor's shape")
        except InvalidOperatorError as error:
            raise InvalidTensorError(error.problem, given=error.given) from error
        object.__setattr__(self, "shape", shape)
        name = getattr(self.dtype, "name", None) or getattr(self.dtype, "__name__", None)
        object.__setattr__(self, "dtype", str(name or self.dtype))
        if self.dtype not in DTYPE_CODES:
            raise InvalidTensorError(
                "Unknown dtype of a tensor.", given=repr(self.dtype), accepted=", ".join(DTYPE_CODES)
            )
        if self.layout not in LAYOUTS:
            raise InvalidTensorError("Unknown layout of a tensor.", given=repr(self.layout), accepted=LAYOUTS)
        if len(shape) > MAXIMUM_RANK:
            raise InvalidTensorError("A tensor has too many axes.", given=len(shape), accepted=f"0 to {MAXIMUM_RANK}")
        if any(size < 0 for size in shape):
            raise InvalidTensorError("A tensor has a negative size.", given=shape, accepted="sizes of at least 0")
        if self.elements > MAXIMUM_ELEMENTS:
            raise InvalidTensorError(
                "A tensor has too many elements.", given=self.elements, accepted=f"at most {MAXIMUM_ELEMENTS}"
            )

    @property
    def elements(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class TensorRole:
    """One tensor of an operator: an input, a parameter or an output.

    Args:
        name: its name in `constants=` and among a kernel's arguments.
        dtype: NumPy's name of the element type.
        shape: the canonical shape; () for a parameter per tensor, (n,) for one per channel, row, column or axis.
        role: "data", "filter", "bias", "scale", "zero_point", "range" or "output".
        broadcast: for a vector parameter, the position of its axis counted from the end of DirectML's broadcast
            shape, as (rank, axis): {1,C,1,1} is (4, 1).
        optional: whether it may be left out of a call (a zero point, which is then 0).
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    role: str
    broadcast: tuple[int, int] | None = None
    optional: bool = False

    @property
    def elements(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def is_parameter(self) -> bool:
        """Whether scalars and broadcast shapes are accepted."""
        return self.role in ("scale", "zero_point", "range", "bias")

    def accepted_shapes(self) -> list[tuple[int, ...]]:
        """All shapes in which a value of this tensor may be given; the canonical one is the first."""
        if not self.is_parameter:
            return [self.shape]
        shapes: list[tuple[int, ...]] = [self.shape]
        if self.role == "bias":
            shapes += _broadcast_shapes(self)
        elif self.shape == ():
            shapes += [(1,) * rank for rank in range(1, 5)]
        elif self.role != "range":  # TensorFlow wants exactly one range per slice
            shapes += [(), (1,), *_broadcast_shapes(self)]
        return list(dict.fromkeys(shapes))

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}[{', '.join(map(str, self.shape))}]"


def _broadcast_shapes(tensor: TensorRole) -> Iterable[tuple[int, ...]]:
    """The vector in its place among axes of size 1: (1, C, 1, 1), (M, 1), (1, N) ..."""
    if tensor.broadcast is None or len(tensor.shape) != 1:
        return
    rank, axis = tensor.broadcast
    full = [1] * rank
    full[axis] = tensor.shape[0]
    for start in range(axis + 1):
        yield tuple(full[start:])
