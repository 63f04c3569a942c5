"""Checks compiled kernels against the NumPy reference, bit for bit, on tensors that are hard on purpose."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..backends.interface import Emulation
from ..errors import EmulationFaultError, InvalidTensorError, KernelError
from ..reference import evaluate
from ..reference.random_values import kernel_values
from ..runtime.kernel import Kernel
from ..runtime.loader import Bundle, load_bundle
from ..runtime.places import parse_emulate
from .difference import axes_of, describe_pattern

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Verification:
    """The result for one variant of a kernel.

    Args:
        name: the kernel.
        target: its target.
        rounds: draws of random tensors.
        elements: output elements that were compared.
        wrong: how many of them differ from the reference.
        detail: where the first difference is, what surrounds it, and which indices of each axis are wrong; "" where
            there is none.
        emulated_cpu: the CPU model that was emulated; "" where the kernel ran natively.
        failure: why it gave no result: what it did that it must not do, or what it reported; "" where it gave one.
    """

    name: str
    target: str
    rounds: int
    elements: int
    wrong: int
    detail: str
    emulated_cpu: str = ""
    failure: str = ""

    @property
    def is_exact(self) -> bool:
        """Whether there is a result, and every element equals the reference."""
        return self.wrong == 0 and not self.failure


def verify(
    bundle: Bundle | Kernel | str | os.PathLike[str],
    *,
    rounds: int = 2,
    seed: int = 0,
    emulate: bool | str = False,
    progress: Callable[[int, int, str], None] | None = None,
) -> list[Verification]:
    """Runs every variant of every kernel that this machine can run on random tensors, and compares with the reference.

    Args:
        bundle: a bundle, a kernel, or the path of a bundle.
        emulate: True runs the other variants too, in emulation, if the bundle names their CPU; "always" emulates all.
            False leaves a bundle or kernel that was loaded with emulation as it is.
        rounds: draws of random tensors for each kernel.
        seed: of the random tensors; equal seeds give equal tensors.
        progress: called with (variants done, variants in all, kernel of the next) before each variant and at the end.

    Raises:
        IncompatibleMachineError: a kernel has no variant for this machine.
        EmulationError: the emulator is missing or does not know a CPU.
    """
    emulation = parse_emulate(emulate)
    if rounds < 1:
        raise InvalidTensorError("verify() needs a round.", given=f"rounds={rounds}", accepted="at least 1")
    if isinstance(bundle, Kernel):
        kernels = [bundle]
    else:
        kernels = list(bundle if isinstance(bundle, Bundle) else load_bundle(bundle))
    if emulation is not Emulation.NEVER:
        kernels = [kernel.emulated(always=emulation is Emulation.ALWAYS) for kernel in kernels]
    work = []
    for kernel in kernels:
        targets = kernel.runnable_targets
        if not targets:
            _ = kernel.variant  # raises, and says what is missing
        work += [kernel.on(target) for target in targets]
    for kernel in work:
        kernel.check_place()  # raises before the long work rather than after it
    results = []
    for number, kernel in enumerate(work):
        if progress is not None:
            progress(number, len(work), kernel.name)
        results.append(verify_kernel(kernel, rounds, seed))
    if progress is not None:
        progress(len(work), len(work), "")
    return results


def verify_kernel(kernel: Kernel, rounds: int, seed: int) -> Verification:
    """Compares one kernel with the reference."""
    elements, wrong, detail, failure = 0, 0, "", ""
    for round_number in range(rounds):
        values = kernel_values(kernel.operator, kernel.constants, np.random.default_rng([seed, round_number]))
        expected = evaluate(kernel.operator, values)
        try:
            given = kernel(**{tensor.name: values[tensor.name] for tensor in kernel.inputs})
        except (EmulationFaultError, KernelError) as error:
            failure = error.problem + (f" ({error.given})" if error.given is not None else "")
            break
        outputs = [given] if len(expected) == 1 else list(given)
        for (name, right), output in zip(expected.items(), outputs, strict=True):
            different = differing(right, output)
            elements += right.size
            wrong += int(different.sum())
            detail = detail or describe_difference(name, right, output, kernel)
    variant = kernel.variant
    return Verification(kernel.name, variant.target, rounds, elements, wrong, detail, variant.emulated_cpu, failure)


def differing(expected: Array, actual: Array) -> npt.NDArray[np.bool_]:
    """Where two arrays differ; NaN equals NaN."""
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        raise KernelError(
            "A kernel returned another shape or dtype than the reference.",
            given=f"{actual.dtype}{list(actual.shape)}",
            accepted=f"{expected.dtype}{list(expected.shape)}",
        )
    different = np.asarray(expected != actual)
    if expected.dtype.kind == "f":
        different &= ~(np.isnan(expected) & np.isnan(actual))
    return different


def describe_difference(name: str, expected: Array, actual: Array, kernel: Kernel | None = None) -> str:
    """Says how many elements differ, where the first one is and what surrounds it, and which indices are wrong.

    Args:
        name: of the output.
        expected: its elements.
        actual: what a kernel returned, of the same shape and dtype.
        kernel: which names the axes, and has the lengths of tiles; axes have numbers without it.

    Returns:
        One line of at most 1024 characters; "" where none differs.
    """
    different = differing(expected, actual)
    if not different.any():
        return ""
    flat = int(np.argmax(different.ravel()))
    place = tuple(int(index) for index in np.unravel_index(flat, expected.shape)) if expected.shape else ()
    around = slice(max(0, flat - 3), flat + 4)
    axes = axes_of(expected.ndim, kernel.operator, kernel.variant.knobs) if kernel else axes_of(expected.ndim)
    pattern = describe_pattern(different, axes)
    return (
        f"{name}: {int(different.sum())} of {expected.size} elements of shape {list(expected.shape)} differ; the first "
        f"at {list(place)}: expected {expected.ravel()[flat]}, got {actual.ravel()[flat]}; around it expected "
        f"{expected.ravel()[around].tolist()}, got {actual.ravel()[around].tolist()}{pattern and f'; {pattern}'}"
    )
