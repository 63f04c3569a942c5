"""CPU targets in LLVM's terms: the target, its CPU and features, checked before LLVM would end the process."""

from __future__ import annotations

from types import ModuleType

import tvm

from ...errors import LoweringError, TargetFileError
from ...intrinsics.table import INSTRUCTIONS
from ..interface import Hardware
from . import aarch64, x86
from .facts import KNOWN_FEATURES, CpuFacts

#: architecture -> its names and implications
_ARCHITECTURES: dict[str, ModuleType] = {"x86_64": x86, "aarch64": aarch64}


def check_code_generator(hardware: Hardware) -> None:
    """Raises LoweringError where this TVM cannot generate code for CPUs."""
    if tvm.get_global_func("target.build.llvm", allow_missing=True) is None:
        raise LoweringError(
            f"Target {hardware.name} needs a code generator that this TVM does not have.",
            given="llvm",
            remedy="install the apache-tvm wheel that qcompile names in its requirements",
        )


def tvm_target(hardware: Hardware) -> tvm.target.Target:
    """The target in TVM's terms.

    Raises:
        TargetFileError: TVM does not know an option, or LLVM the CPU or a feature.
    """
    try:
        target = tvm.target.Target(dict(hardware.target))
        if target.kind.name != "llvm":
            raise ValueError(f"kind {target.kind.name!r} does not generate code for CPUs; 'llvm' does")
        cpus = tvm.get_global_func("target.llvm_get_cpu_archlist")(target)
        cpu = hardware.target.get("mcpu", "generic")
        if cpu not in set(map(str, cpus)):  # LLVM would print a line and take a generic one
            raise ValueError(f"LLVM does not know the CPU {cpu!r}")
        _check_features(hardware, set(map(str, tvm.get_global_func("target.llvm_get_cpu_features")(target))))
        return target
    except (ValueError, TypeError, RuntimeError) as error:
        message = str(error).splitlines()[0]
        raise TargetFileError(f"TVM refuses the table [target] of {hardware.name}: {message}") from error


def _check_features(hardware: Hardware, features: set[str]) -> None:
    """Raises ValueError where LLVM would end the process, or ignore what it does not know.

    Args:
        hardware: the target.
        features: what LLVM's CPU has, with the target's own additions.
    """
    facts: CpuFacts = hardware.facts
    names = _ARCHITECTURES[facts.architecture]
    for word in hardware.target.get("mattr", ()):
        if word.startswith("+") and word[1:] not in features:
            raise ValueError(f"LLVM does not know the feature {word!r} of mattr")
    used = {names.LLVM_FEATURES.get(name, name) for name in features} & set(KNOWN_FEATURES[facts.architecture])
    required = set(facts.required_features)
    implied = {name for feature in required for name in names.IMPLIED.get(feature, ())}
    lacking = used - required - names.BASELINE - implied
    if lacking:
        raise ValueError(
            f"mcpu and mattr enable {', '.join(sorted(lacking))}, but required_features does not list "
            f"{'it' if len(lacking) == 1 else 'them'}"
        )
    for name in facts.instructions:
        alternatives = INSTRUCTIONS[name].features
        if not any(needed <= features for needed in alternatives):
            ways = " or ".join(" and ".join(sorted(needed)) for needed in alternatives)
            raise ValueError(f"the instruction {name} needs the feature {ways}, which mcpu and mattr do not enable")
