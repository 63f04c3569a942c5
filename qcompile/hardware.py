"""Hardware: one target file, loaded and checked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from . import resources
from .emulation.models import MODELS
from .errors import TargetFileError, UnknownNameError
from .instructions import INSTRUCTIONS


@dataclass(frozen=True)
class Hardware:
    """The facts of one target.

    Args:
        name: the target's name.
        description: a line for people.
        kind: "cpu".
        architecture: machine name as in `uname -m`.
        required_features: CPU features without which the kernels must not run, as named in `runtime.cpu_features`.
        code_generators: code generators that TVM must have.
        rules: schedule rules in order of preference.
        vector_bits: width of an integer vector.
        target: the dictionary for `tvm.target.Target`.
        emulated_cpu: CPU model with all required features that is emulated where they are missing, by its name in
            `emulation.models`; "" (default) where none is.
        multiply_add_pairs: LLVM's name of the instruction that multiplies int16 pairs and adds the products into int32
            lanes of a whole vector; "" (default) where there is none.
        multiply_add_bytes: LLVM's name of the instruction that multiplies uint8 by int8 and adds pairs of products into
            int16 lanes of a whole vector, saturating; "" (default) where there is none.
        dot_product: LLVM's name of the instruction that multiplies four uint8 by four int8 and adds the products to the
            int32 lanes of a whole vector, without saturating; "" (default) where there is none.
        dot_product_pairs: LLVM's name of the instruction that multiplies int16 pairs and adds the products to the int32
            lanes of a whole vector, without saturating; "" (default) where there is none.
        vector_registers: vectors that the registers hold; 16 (default) or 32.
    """

    name: str
    description: str
    kind: str
    architecture: str
    required_features: tuple[str, ...]
    code_generators: tuple[str, ...]
    rules: tuple[str, ...]
    vector_bits: int
    target: Mapping[str, Any]
    emulated_cpu: str = ""
    multiply_add_pairs: str = ""
    multiply_add_bytes: str = ""
    dot_product: str = ""
    dot_product_pairs: str = ""
    vector_registers: int = 16

    @property
    def int32_lanes(self) -> int:
        """int32 elements in one vector."""
        return self.vector_bits // 32

    @property
    def pairs_instruction(self) -> tuple[str, bool]:
        """LLVM's name of the instruction for int16 pairs, and whether it adds to the sums; ("", False) for none."""
        if self.dot_product_pairs:
            return self.dot_product_pairs, True
        return self.multiply_add_pairs, False


CODE_GENERATORS = ("llvm",)
#: architecture -> CPU features that a target may require, in the names of `runtime.cpu_features`
KNOWN_FEATURES: dict[str, tuple[str, ...]] = {
    "x86_64": (
        "sse2", "sse3", "ssse3", "sse4_1", "sse4_2", "popcnt", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "lzcnt",
        "movbe", "avxvnni", "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "avx512vnni", "avx512_bf16",
        "avx512_fp16", "avx512_vbmi2", "amx_tile", "amx_int8",
    ),
    "aarch64": ("fp", "neon", "asimdhp", "dotprod", "i8mm", "bf16", "sve", "sve2", "svei8mm", "atomics"),
}  # fmt: skip

_TYPES: dict[str, type] = {"vector_bits": int, "vector_registers": int, "target": dict}
_OPTIONAL = (
    "emulated_cpu", "multiply_add_pairs", "multiply_add_bytes", "dot_product", "dot_product_pairs", "vector_registers",
)  # fmt: skip
_LISTS = ("required_features", "code_generators", "rules")


def load(name_or_path: str) -> Hardware:
    """The hardware of a target's name, or of a target file of the user's own.

    Raises:
        UnknownNameError: no target of that name.
        TargetFileError: the file cannot be read or a field is missing, unknown or of the wrong type.
    """
    if name_or_path in resources.target_names():
        return _check(resources.read_target(name_or_path), name_or_path)
    path = Path(name_or_path)
    if path.suffix == ".toml":
        return _check(resources.read_toml(path, "The target file"), name_or_path)
    raise UnknownNameError(
        "Unknown target.",
        given=repr(name_or_path),
        accepted=", ".join(["host", *resources.target_names()]) + ", or the path of a target file (.toml)",
    )


def load_all() -> list[Hardware]:
    """All targets that come with the package, by name."""
    return [load(name) for name in resources.target_names()]


def _check(content: Mapping[str, Any], origin: str) -> Hardware:
    names = [field.name for field in fields(Hardware)]
    for name in content:
        if name not in names:
            raise TargetFileError(f"Target file {origin}: unknown field.", given=name, accepted=", ".join(names))
    values: dict[str, Any] = {}
    for name in names:
        if name not in content:
            if name in _OPTIONAL:
                continue
            raise TargetFileError(f"Target file {origin}: the field {name!r} is missing.")
        value = content[name]
        if name in _LISTS:
            if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
                raise TargetFileError(f"Target file {origin}: {name} must be a list of strings.", given=repr(value))
            value = tuple(value)
        elif not isinstance(value, _TYPES.get(name, str)):
            expected = _TYPES.get(name, str).__name__
            raise TargetFileError(f"Target file {origin}: {name} has the wrong type.", given=repr(value),
                                  accepted=expected)  # fmt: skip
        values[name] = value
    if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", values["name"]) is None:
        raise TargetFileError(
            f"Target file {origin}: name is unusable.",
            given=repr(values["name"])[:80],
            accepted="letters, digits, - and .",
        )
    if not values["rules"]:
        raise TargetFileError(f"Target file {origin}: rules is empty.", accepted="at least one schedule rule")
    if values["code_generators"] != CODE_GENERATORS:
        raise TargetFileError(
            f"Target file {origin}: code_generators is wrong.",
            given=list(values["code_generators"]),
            accepted=list(CODE_GENERATORS),
        )
    if values["kind"] != "cpu":
        raise TargetFileError(f"Target file {origin}: unknown kind.", given=values["kind"], accepted="cpu")
    if values["vector_bits"] not in (128, 256, 512):
        raise TargetFileError(
            f"Target file {origin}: vector_bits is wrong.", given=values["vector_bits"], accepted="128, 256 or 512"
        )
    for field_name, known_instructions in INSTRUCTIONS.items():
        chosen = values.get(field_name, "")
        fitting = [name for name, entry in known_instructions.items() if entry.vector_bits == values["vector_bits"]]
        if chosen and chosen not in fitting:
            raise TargetFileError(
                f"Target file {origin}: {field_name} names no instruction that is known for vectors of "
                f"{values['vector_bits']} bits.",
                given=repr(chosen)[:120],
                accepted=", ".join(fitting),
                remedy="leave the field out where there is no such instruction",
            )
    emulated_cpu = values.get("emulated_cpu", "")
    if emulated_cpu and emulated_cpu not in MODELS:
        raise TargetFileError(
            f"Target file {origin}: emulated_cpu is no CPU that can be emulated.",
            given=repr(emulated_cpu)[:80],
            accepted=", ".join(MODELS),
        )
    if values.get("vector_registers", 16) not in (16, 32):
        raise TargetFileError(
            f"Target file {origin}: vector_registers is wrong.", given=values["vector_registers"], accepted="16 or 32"
        )
    known = KNOWN_FEATURES.get(values["architecture"])
    if known is None:
        raise TargetFileError(
            f"Target file {origin}: unknown architecture.",
            given=values["architecture"],
            accepted=", ".join(KNOWN_FEATURES),
        )
    for feature in values["required_features"]:
        if feature not in known:
            raise TargetFileError(
                f"Target file {origin}: unknown CPU feature.", given=feature, accepted=", ".join(known)
            )
    return Hardware(**values)
