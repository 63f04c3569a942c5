"""Small helpers of several tests."""

from __future__ import annotations

import signal
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import qcompile as qc
from qcompile.backends.interface import Hardware
from qcompile.checks.verification import describe_difference
from qcompile.constants.facts import NOTHING, Facts
from qcompile.pipeline.stages import stages
from qcompile.planning import find
from qcompile.spec import Operator

DATA_TENSORS = ("input", "a")


def split_values(
    values: dict[str, npt.NDArray[Any]], constant_names: set[str]
) -> tuple[dict[str, npt.NDArray[Any]], dict[str, npt.NDArray[Any]]]:
    """(constants, run-time tensors)."""
    constants = {name: value for name, value in values.items() if name in constant_names}
    return constants, {name: value for name, value in values.items() if name not in constant_names}


def assert_equal(expected: dict[str, npt.NDArray[Any]], actual: Any, ignored: tuple[int, ...] = ()) -> None:
    """Every bit of every output, except for the flat indices `ignored` of the first."""
    outputs = [actual] if len(expected) == 1 else list(actual)
    for number, ((name, right), output) in enumerate(zip(expected.items(), outputs, strict=True)):
        if ignored and number == 0:
            output = output.copy()
            output.ravel()[list(ignored)] = right.ravel()[list(ignored)]
        assert describe_difference(name, right.reshape(output.shape), output) == ""


def small_convolution(**fields: Any) -> qc.QuantizedLinearConvolution:
    """A convolution that compiles fast."""
    arguments = {"bias": True, "start_padding": (1, 1), "end_padding": (1, 1), **fields}
    return qc.QuantizedLinearConvolution(
        qc.Tensor((1, 4, 6, 5), "uint8"), qc.Tensor((8, 4, 3, 3), "int8"), "uint8", **arguments
    )


def small_constants(rng: np.random.Generator | None = None) -> dict[str, Any]:
    """Constants of `small_convolution`, for all but its input."""
    rng = rng or np.random.default_rng(0)
    return {
        "filter": rng.integers(-128, 128, (8, 4, 3, 3), dtype=np.int8),
        "bias": rng.integers(-1000, 1000, 8, dtype=np.int32),
        "input_scale": 0.02,
        "input_zero_point": 100,
        "filter_scale": 0.01,
        "filter_zero_point": 3,
        "output_scale": 0.1,
        "output_zero_point": 110,
    }


def small_input(rng: np.random.Generator | None = None) -> npt.NDArray[np.uint8]:
    """An input of `small_convolution`."""
    return (rng or np.random.default_rng(1)).integers(0, 256, (1, 4, 6, 5), dtype=np.uint8)


def through_file(compiled: qc.Kernel | qc.Bundle, folder: Path) -> Any:
    """Saved and loaded again; what this machine cannot run is emulated."""
    path = folder / "kernels.qcb"
    compiled.save(path)
    return qc.load(path, emulate=True)


def constant_names(operator: Operator) -> set[str]:
    """All tensors but the data."""
    return {tensor.name for tensor in operator.tensors if tensor.name not in DATA_TENSORS}


def listen_to_interrupts() -> None:
    """For `preexec_fn`: a shell starts its background commands deaf to SIGINT, and their children are so too."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def stage_texts(
    operator: Operator,
    constants: Collection[str],
    hardware: Hardware,
    wanted: Sequence[str],
    facts: Facts = NOTHING,
) -> dict[str, str]:
    """The texts of a kernel in stages of lowering, scheduled as without records of the user's own."""
    return stages(find(operator, hardware, constants, facts=facts), wanted)
