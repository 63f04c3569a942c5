"""A computation under construction: its arguments, and the quantities that may be folded at compile time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from tvm import te, tirx

from ..errors import UnsupportedError
from ..spec import Operator
from ..spec.tensor import MAXIMUM_ELEMENTS
from .arguments import CodeArgument

#: Loops round extents up to whole vectors and tiles; their ends must stay within 32 bits too.
ROUNDING_MARGIN = 1 << 16


@dataclass(frozen=True)
class Computation:
    """A PrimFunc with named blocks, and what its parameters are, in order."""

    function: tirx.PrimFunc
    arguments: tuple[CodeArgument, ...]


class Builder:
    """Collects placeholders while a compute function describes an operator.

    Args:
        operator: what is computed.
        known: names of the operator's tensors whose values are compile-time constants.
    """

    def __init__(self, operator: Operator, known: frozenset[str]):
        self.operator = operator
        self.known = known
        self._placeholders: dict[str, tuple[CodeArgument, te.Tensor]] = {}
        self._names = {tensor.name for tensor in operator.tensors}

    def exists(self, name: str) -> bool:
        """Whether the operator has that tensor."""
        return name in self._names

    def raw(self, name: str, shape: tuple[int, ...] | None = None) -> te.Tensor:
        """The operator's own tensor, seen in `shape` (default: its canonical one; a scalar is (1,))."""
        tensor = self.operator.tensor(name)
        shape = shape or tensor.shape or (1,)
        return self._placeholder(name, tensor.dtype, shape, "constant" if name in self.known else "input")

    def derived(
        self,
        name: str,
        sources: Iterable[str],
        dtype: str,
        shape: tuple[int, ...],
        stage: Callable[..., Any],
    ) -> te.Tensor:
        """A quantity of constants where all existing `sources` are known, else a stage of the kernel.

        `stage` maps the indices to the value; it uses `raw` for what it reads.
        """
        if all(source in self.known for source in sources if self.exists(source)):
            return self._placeholder(name, dtype, shape, "constant")
        return te.compute(shape, stage, name=name)

    def scalar_or_vector(self, name: str, dtype: str, absent: float = 0) -> Callable[[Any], Any]:
        """A parameter as a function of the index of its axis, cast to `dtype`; `absent` where it does not exist."""
        if not self.exists(name):
            return lambda index: tirx.const(absent, dtype)
        values = self.raw(name)
        is_scalar = self.operator.tensor(name).shape == ()
        return lambda index: values[0 if is_scalar else index].astype(dtype)

    def finish(self, outputs: Iterable[tuple[str, te.Tensor]]) -> Computation:
        """The function of inputs, constants and outputs, in that order."""
        order = [tensor.name for tensor in self.operator.tensors]
        arguments = sorted(
            self._placeholders.values(),
            key=lambda pair: (
                pair[0].kind != "input",
                order.index(pair[0].name) if pair[0].name in order else len(order),
                pair[0].name,
            ),
        )
        results = [
            (CodeArgument(name, str(tensor.dtype), tuple(int(size) for size in tensor.shape), "output"), tensor)
            for name, tensor in outputs
        ]
        everything = [*arguments, *results]
        for _, tensor in results:
            _check_sizes(tensor)
        return Computation(
            te.create_prim_func([tensor for _, tensor in everything]), tuple(argument for argument, _ in everything)
        )

    def _placeholder(self, name: str, dtype: str, shape: tuple[int, ...], kind: str) -> te.Tensor:
        if name not in self._placeholders:
            argument = CodeArgument(name, dtype, tuple(shape), kind)
            self._placeholders[name] = argument, te.placeholder(shape, dtype, name=name)
        return self._placeholders[name][1]


def _check_sizes(tensor: te.Tensor) -> None:
    """Raises UnsupportedError where an intermediate tensor has more elements than 32-bit offsets reach."""
    pending, seen = [tensor], set[str]()
    while pending:
        one = pending.pop()
        if one.op.name in seen:
            continue
        seen.add(one.op.name)
        elements = math.prod(int(size) for size in one.shape)
        if elements > MAXIMUM_ELEMENTS - ROUNDING_MARGIN:
            raise UnsupportedError(
                "The operator is too large: a tensor inside the kernel has more elements than 32-bit offsets reach.",
                given=f"{one.op.name} of {elements} elements",
                accepted=f"at most {MAXIMUM_ELEMENTS - ROUNDING_MARGIN}",
                remedy="split the operator along its batch or its output channels",
            )
        pending.extend(one.op.input_tensors)
