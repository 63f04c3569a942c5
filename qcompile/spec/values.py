"""Checks the values given for an operator's tensors and brings them into their canonical shape and dtype."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..errors import InvalidQuantizationError, InvalidTensorError
from .tensor import INTEGER_RANGES, TensorRole

if TYPE_CHECKING:
    from .operator import Operator

#: A smaller scale is refused, so that no result depends on how a target treats denormal numbers.
SMALLEST_SCALE = np.float32(2.0**-100)
#: The smallest float32 that is not denormal.
SMALLEST_NORMAL = np.float32(2.0**-126)


def canonical_value(tensor: TensorRole, value: Any) -> npt.NDArray[Any]:
    """Returns `value` as a C-contiguous array of the tensor's canonical shape and dtype.

    Arrays (NumPy's, or anything with DLPack) must have exactly the tensor's dtype. Python numbers and sequences of
    them are converted where the dtype holds them. Parameters are also accepted as scalars and in broadcast shapes.

    Raises:
        InvalidTensorError: a wrong shape or dtype, or a number outside the dtype.
        InvalidQuantizationError: a scale that is not finite, not positive or below 2^-100.
    """
    array = _as_array(tensor, value)
    if array.shape != tensor.shape:
        array = _reshape(tensor, array)
    if not (array.flags.c_contiguous and array.flags.aligned):
        array = np.require(array, requirements=["C", "A"])
    if tensor.role == "scale":
        check_scale(tensor.name, array)
    return array


def canonical_values(operator: Operator, values: Mapping[str, Any]) -> dict[str, npt.NDArray[Any]]:
    """Checks several values by name, in the operator's order; no tensor has to be there.

    Raises:
        InvalidTensorError: a name that the operator does not have, besides the errors of `canonical_value`.
    """
    tensors = {tensor.name: tensor for tensor in operator.tensors}
    for name in values:
        if name not in tensors:
            raise InvalidTensorError(
                f"{type(operator).__name__} has no tensor of that name.",
                given=repr(name),
                accepted=", ".join(tensors),
            )
    return {name: canonical_value(tensor, values[name]) for name, tensor in tensors.items() if name in values}


def check_scale(name: str, scale: npt.NDArray[Any]) -> None:
    """Raises InvalidQuantizationError unless all of `scale` is finite and at least 2^-100."""
    if not np.all(np.isfinite(scale) & (scale >= SMALLEST_SCALE)):
        bad = scale[~(np.isfinite(scale) & (scale >= SMALLEST_SCALE))].ravel()[0]
        raise InvalidQuantizationError(
            f"{name} has a value that is no scale.",
            given=repr(float(bad)),
            accepted="finite numbers > 0, at least 2^-100",
        )


def check_multiplier(multiplier: npt.NDArray[np.float32], words: str, smallest: np.float32 = SMALLEST_NORMAL) -> None:
    """Raises InvalidQuantizationError unless the combination of scales `words` is finite, > 0 and >= `smallest`."""
    usable = np.isfinite(multiplier) & (multiplier > 0) & (multiplier >= smallest)
    if not np.all(usable):
        raise InvalidQuantizationError(
            f"The multiplier {words} is not a usable float32 number.",
            given=repr(float(np.asarray(multiplier)[~usable].ravel()[0])),
            accepted="a finite value > 0" + (", at least 2^-126" if smallest > 0 else ""),
            remedy="check the scales: their product or quotient overflows or vanishes",
        )


def _as_array(tensor: TensorRole, value: Any) -> npt.NDArray[Any]:
    if isinstance(value, (np.ndarray, np.generic)):
        array = np.asarray(value)
    elif isinstance(value, (bool, str, bytes)) or value is None:
        raise _wrong_dtype(tensor, type(value).__name__)
    elif isinstance(value, (int, float, list, tuple)):
        return _from_numbers(tensor, value)
    elif hasattr(value, "__dlpack__") or hasattr(value, "__array__"):
        try:
            array = np.from_dlpack(value) if hasattr(value, "__dlpack__") else np.asarray(value)
        except Exception as error:  # whatever the foreign object raises
            raise InvalidTensorError(
                f"{tensor.name} cannot be read as an array.", given=f"{type(value).__name__}: {error}"
            ) from error
    else:
        raise _wrong_dtype(tensor, type(value).__name__)
    # np.float64 is a subclass of float: a float64 scalar is the usual form of a Python number
    if array.shape == () and array.dtype == np.float64 and tensor.dtype in ("float16", "float32"):
        return _from_numbers(tensor, float(array))
    if array.dtype != np.dtype(tensor.dtype):
        raise _wrong_dtype(tensor, str(array.dtype))
    return array


def _from_numbers(tensor: TensorRole, value: Any) -> npt.NDArray[Any]:
    try:
        numbers = np.array(value)
    except ValueError as error:
        raise InvalidTensorError(f"{tensor.name} is a ragged sequence.", given=repr(value)) from error
    kinds = "iu" if tensor.dtype in INTEGER_RANGES else "iuf"
    if numbers.dtype.kind not in kinds:
        raise _wrong_dtype(tensor, f"{type(value).__name__} of {numbers.dtype}")
    if tensor.dtype in INTEGER_RANGES and numbers.size:
        low, high = INTEGER_RANGES[tensor.dtype]
        if int(numbers.min()) < low or int(numbers.max()) > high:
            raise InvalidTensorError(
                f"{tensor.name} has a number outside {tensor.dtype}.", given=repr(value), accepted=f"{low} to {high}"
            )
    with np.errstate(over="ignore"):
        return numbers.astype(tensor.dtype)


def _reshape(tensor: TensorRole, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    accepted = tensor.accepted_shapes()
    if array.shape not in accepted:
        raise InvalidTensorError(
            f"{tensor.name} has the wrong shape.",
            given=array.shape,
            accepted=" or ".join(map(str, accepted)),
        )
    if array.size == 1:
        return np.full(tensor.shape, array.reshape(()), dtype=array.dtype)
    return array.reshape(tensor.shape)


def _wrong_dtype(tensor: TensorRole, given: str) -> InvalidTensorError:
    return InvalidTensorError(f"{tensor.name} has the wrong dtype.", given=given, accepted=tensor.dtype)
