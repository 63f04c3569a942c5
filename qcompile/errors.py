"""Every exception and warning of qcompile.

An error names the thing, what was given, what is accepted and what to do about it. The command line turns any
of them into one message and the exit status 2.
"""

from __future__ import annotations


class QCompileError(Exception):
    """Base of all errors that qcompile raises on purpose.

    Args:
        problem: what is wrong, naming the thing.
        given: what was given.
        accepted: what would have been accepted.
        remedy: what to do.
    """

    exit_status = 2

    def __init__(self, problem: str, *, given: object = None, accepted: object = None, remedy: str | None = None):
        self.problem = problem
        self.given = given
        self.accepted = accepted
        self.remedy = remedy
        lines = [problem]
        lines += [f"  given:    {given}"] if given is not None else []
        lines += [f"  accepted: {accepted}"] if accepted is not None else []
        lines += [f"  remedy:   {remedy}"] if remedy is not None else []
        super().__init__("\n".join(lines))


class InvalidOperatorError(QCompileError, ValueError):
    """An operator description contradicts itself or asks for something that does not exist."""


class InvalidTensorError(QCompileError, ValueError):
    """A tensor has the wrong name, shape or dtype, at compile or at run time."""


class InvalidQuantizationError(QCompileError, ValueError):
    """A scale or a zero point that the arithmetic does not allow."""


class AccumulatorOverflowError(QCompileError, ValueError):
    """An int32 accumulator can overflow for some inputs, and `overflow="error"` forbids it."""


class UnknownNameError(QCompileError, KeyError):
    """A target, rule, kernel or kernel name that does not exist."""

    def __str__(self) -> str:  # KeyError would print the repr
        return str(self.args[0])


class TargetFileError(QCompileError):
    """A target file, or the numbers of its schedules, cannot be read or are wrong."""


class UnsupportedError(QCompileError, NotImplementedError):
    """A valid request that this version does not serve."""


class MissingDependencyError(QCompileError, ImportError):
    """A package that this feature needs is not installed, or has the wrong version."""


class ToolchainError(QCompileError, RuntimeError):
    """A C compiler is missing, or failed."""


class LoweringError(QCompileError, RuntimeError):
    """The code generator refused a kernel. This is a fault of qcompile or of TVM, not of the input."""


class BundleError(QCompileError):
    """A bundle cannot be read: it is missing, empty, truncated, damaged, foreign or too new."""


class FileWriteError(QCompileError, OSError):
    """A file cannot be written: its folder is missing or not writable, the place is taken, or the disk is full."""


class IncompatibleMachineError(QCompileError, RuntimeError):
    """No variant of a kernel runs on this machine."""


class KernelError(QCompileError, RuntimeError):
    """A kernel reported a failure while it ran."""


class EmulationError(QCompileError, RuntimeError):
    """A kernel cannot be emulated."""


class EmulationFaultError(EmulationError):
    """A kernel does in emulation what it must not do, or what the emulator is known to do wrongly."""


class RecordsError(QCompileError, ValueError):
    """A file of records cannot be read or written, or holds something else than records."""


class TuningError(QCompileError, RuntimeError):
    """Tuning cannot start or go on: the workers do not answer, or nothing can be measured."""


class ModelError(QCompileError, ValueError):
    """An ONNX model cannot be read, or does not hold what is asked of it."""


class NotApplicable(QCompileError):  # noqa: N818 - a rule's answer, not an error
    """A schedule rule does not apply; the reason is shown by `explain`."""

    def __init__(self, reason: str):
        self.reason = reason
        super().__init__(reason)


class QCompileWarning(UserWarning):
    """Base of the warnings."""


class AccumulatorOverflowWarning(QCompileWarning):
    """An int32 accumulator can overflow for some inputs; it then wraps modulo 2^32."""


class CacheWarning(QCompileWarning):
    """The cache of compiled kernels cannot be used; compilation goes on without it."""


class RecordsWarning(QCompileWarning):
    """Records are not used: a file ends in the middle of a line, or none of its records is followed."""
