"""What all operator descriptions have in common, and the checks that they share."""

from __future__ import annotations

import operator as builtin_operators
from collections.abc import Mapping
from dataclasses import fields, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from ..errors import InvalidOperatorError
from .tensor import INTEGER_RANGES, Tensor, TensorRole, integer_tuple
from .values import check_multiplier


class Operator:
    """Base of the operator descriptions: frozen dataclasses that check themselves when they are built."""

    #: The first word of a kernel's name.
    family: ClassVar[str]
    #: Whether the layout of its tensors has a meaning.
    has_layout: ClassVar[bool] = False

    @cached_property
    def tensors(self) -> tuple[TensorRole, ...]:
        """The tensors that go in, in the order of the kernel's arguments."""
        raise NotImplementedError

    @cached_property
    def outputs(self) -> tuple[TensorRole, ...]:
        """The tensors that come out."""
        raise NotImplementedError

    @property
    def name(self) -> str:
        """The name of this operator's kernel; `spec.naming.parse` turns it back into the operator."""
        from .naming import operator_name

        return operator_name(self)

    @property
    def operations(self) -> int:
        """Multiply-accumulates, or elements where nothing is accumulated; for speed figures."""
        raise NotImplementedError

    @property
    def accumulation_length(self) -> int:
        """The number of products in one accumulator; 0 where nothing is accumulated."""
        return 0

    def check_values(self, values: Mapping[str, npt.NDArray[Any]]) -> None:
        """Checks what concerns several canonical values at once; tensors that are not there are not checked."""

    def tensor(self, name: str) -> TensorRole:
        """The input, parameter or output of that name."""
        for tensor in (*self.tensors, *self.outputs):
            if tensor.name == name:
                return tensor
        raise KeyError(name)

    def replace(self, field: str, value: Any) -> None:
        """Sets a field while the frozen dataclass builds itself."""
        object.__setattr__(self, field, value)

    def require(self, condition: bool, problem: str, **details: Any) -> None:
        """Raises InvalidOperatorError with the operator's name in front unless `condition` holds."""
        if not condition:
            raise InvalidOperatorError(f"{type(self).__name__}: {problem}", **details)

    def require_tensor(self, field: str, dtypes: tuple[str, ...], ranks: tuple[int, ...] | None = None) -> None:
        """Checks that a field is a Tensor of one of these dtypes and ranks."""
        tensor = getattr(self, field)
        self.require(isinstance(tensor, Tensor), f"{field} must be a Tensor.", given=repr(tensor))
        self.require(tensor.dtype in dtypes, f"{field} has the wrong dtype.", given=tensor.dtype, accepted=dtypes)
        if ranks is not None:
            self.require(
                len(tensor.shape) in ranks,
                f"{field} has the wrong number of axes.",
                given=f"shape {tensor.shape}",
                accepted=f"{min(ranks)} to {max(ranks)} axes",
            )
        if not self.has_layout:  # equal operators must compare equal
            self.replace(field, replace(tensor, layout="NCHW"))

    def require_elements(self, *names: str) -> None:
        """Checks that these tensors have elements."""
        for name in names:
            tensor = getattr(self, name)
            self.require(
                tensor.elements > 0,
                f"{name} has an axis without elements.",
                given=f"shape {tensor.shape}",
                accepted="sizes of at least 1",
            )

    def require_choice(self, field: str, choices: tuple[Any, ...]) -> None:
        """Checks that a field has one of these values."""
        value = getattr(self, field)
        known = any(value is choice or (type(value) is type(choice) and value == choice) for choice in choices)
        self.require(known, f"unknown {field}.", given=repr(value), accepted=", ".join(map(repr, choices)))

    def require_integer(self, field: str, low: int, high: int | None, problem: str) -> None:
        """Checks that a field is an integer (NumPy's too) of low to high, and makes it an int."""
        value = getattr(self, field)
        try:
            number = None if isinstance(value, bool) else builtin_operators.index(value)
        except TypeError:
            number = None
        accepted = f"an integer of {low} to {high}" if high is not None else f"an integer of at least {low}"
        inside = number is not None and low <= number and (high is None or number <= high)
        self.require(inside, problem, given=repr(value), accepted=accepted)
        self.replace(field, number)

    def require_activation(self, output_dtype: str) -> None:
        """Checks the field `activation`: None, or (minimum, maximum) in codes of the output."""
        activation = getattr(self, "activation")  # noqa: B009 - a field of the subclasses only
        if activation is None:
            return
        low, high = INTEGER_RANGES[output_dtype]
        pair = integer_tuple(activation, "activation")
        self.require(
            len(pair) == 2 and low <= pair[0] <= pair[1] <= high,
            "activation must be (minimum, maximum) in codes of the output.",
            given=activation,
            accepted=f"{low} <= minimum <= maximum <= {high}",
        )
        # the type's whole range clamps nothing, and equal operators must compare equal
        self.replace("activation", None if pair == (low, high) else pair)

    def to_dictionary(self) -> dict[str, Any]:
        """The description as plain JSON values; `spec.serialization.from_dictionary` reads it."""
        plain: dict[str, Any] = {"operator": type(self).__name__}
        for field in fields(self):  # type: ignore[arg-type]
            plain[field.name] = _plain(getattr(self, field.name))
        return plain


def _plain(value: Any) -> Any:
    if isinstance(value, Tensor):
        return {"shape": list(value.shape), "dtype": value.dtype, "layout": value.layout}
    return list(value) if isinstance(value, tuple) else value


def check_combined_scale(values: Mapping[str, npt.NDArray[Any]], numerators: tuple[str, ...], denominator: str) -> None:
    """Checks m = f32(f32(product of the numerators) / denominator), as far as the scales are there.

    Raises:
        InvalidQuantizationError: m is no finite number > 0, or the product is denormal: some targets would flush it.
    """
    if not all(name in values for name in numerators):
        return
    words = " * ".join(numerators)
    with np.errstate(over="ignore", under="ignore"):
        product = values[numerators[0]]
        for name in numerators[1:]:
            product = np.multiply(product, values[name], dtype=np.float32)
        check_multiplier(product, words)
        if denominator in values:
            multiplier = np.divide(product, values[denominator], dtype=np.float32)
            check_multiplier(multiplier, f"{words} / {denominator}", smallest=np.float32(0))
