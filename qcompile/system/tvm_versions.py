"""Checks that the installed pair of TVM packages is the one that works, before TVM is imported."""

from __future__ import annotations

from importlib import metadata

from ..errors import MissingDependencyError

TVM = ("apache-tvm", "0.27.0.post1")
FFI_PREFIX = "0.1.14."
_REMEDY = f"pip install '{TVM[0]}=={TVM[1]}' 'apache-tvm-ffi>=0.1.14.post0,<0.1.15'"


def installed(package: str) -> str | None:
    """The version of a package, or None."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def check() -> None:
    """Raises MissingDependencyError unless exactly the supported versions are there.

    With apache-tvm-ffi 0.1.15, Schedule.tensorize and tvm.ir.save_json crash the process.
    """
    tvm, ffi = installed(TVM[0]), installed("apache-tvm-ffi")
    if tvm == TVM[1] and ffi is not None and (ffi.startswith(FFI_PREFIX) or ffi == FFI_PREFIX.rstrip(".")):
        return
    raise MissingDependencyError(
        "Compiling needs one pair of versions of apache-tvm and apache-tvm-ffi.",
        given=f"apache-tvm {tvm or 'not installed'}, apache-tvm-ffi {ffi or 'not installed'}",
        accepted=f"apache-tvm {TVM[1]}, apache-tvm-ffi {FFI_PREFIX}*",
        remedy=_REMEDY,
    )
