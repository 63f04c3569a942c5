"""Shows the peers a CPU with AVX2 and nothing later, on a machine that has AVX-512 or AVX-VNNI. For measuring only.

    environment = isa_mask.environment(objects, folder)     # then start, or restart, the process with it
    isa_mask.check(objects)                                 # in that process, when the peers are loaded

Peers choose their kernels by the instruction cpuid. `environment` finds it in the disassembly of their shared objects
and has the dynamic linker load isa_mask.c, which replaces those instructions in memory while an object is mapped and
before any of its code has run. No file is changed. What a peer decides without cpuid it has a documented switch for,
which the peer names (`avx2_environment`).

The C library's own choices (memcpy and such) are not masked; nor is qcompile, which is told its target by name.
"""

from __future__ import annotations

import ctypes
import os
import platform
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

from native import shared_library

from qcompile.backends.cpu import features as cpu_features
from qcompile.errors import QCompileError
from qcompile.system.cache import cached
from qcompile.system.hashing import digest

#: Features of /proc/cpuinfo that make peers leave AVX2 behind; without any of them there is nothing to hide.
LATER_FEATURES = frozenset({"avx512f", "avx512vnni", "avxvnni"})
_SITES = "QCOMPILE_ISA_MASK_SITES"
_INSTRUCTION = re.compile(r"^\s*([0-9a-f]+):\s+cpuid\b", re.MULTILINE)
_UD2 = b"\x0f\x0b"


class MaskError(QCompileError):
    """The mask cannot be put on, or is not on."""


def is_needed() -> bool:
    """Whether the CPU has something to hide."""
    return bool(LATER_FEATURES & cpu_features.features())


def is_on() -> bool:
    """Whether this process was started with `environment`. Programs that it starts get none of it."""
    os.environ.pop("LD_AUDIT", None)
    return _SITES in os.environ


def environment(objects: Iterable[Path], folder: Path) -> dict[str, str]:
    """Variables with which a process has to be started.

    Args:
        objects: shared objects of the peers, those in which cpuid shall be masked.
        folder: where the library and the list of instructions are written; it must outlive the process.

    Raises:
        MaskError: the machine is no Linux on x86-64, or objdump is missing.
    """
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise MaskError("Instructions can only be hidden from peers on Linux on x86-64.", given=platform.platform())
    lines = []
    for path in objects:
        status = path.stat()
        lines += [f"{status.st_dev} {status.st_ino} {address:x}\n" for address in cpuid_addresses(path)]
    sites = folder / "sites.txt"
    sites.write_text("".join(lines))
    return {"LD_AUDIT": str(shared_library("isa_mask.c", folder)), _SITES: str(sites)}


def cpuid_addresses(path: Path) -> list[int]:
    """Addresses of all cpuid instructions in a shared object's disassembly."""
    status = path.stat()
    key = digest("cpuid", path.resolve(), status.st_size, status.st_mtime_ns)
    return [int(word, 16) for word in cached(key, lambda: _disassemble(path)).split()]


def _disassemble(path: Path) -> bytes:
    command = ["objdump", "--disassemble", "--no-show-raw-insn", str(path)]
    try:
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
            assert process.stdout is not None
            found = [match[1] for line in process.stdout if "cpuid" in line and (match := _INSTRUCTION.match(line))]
    except FileNotFoundError as error:
        raise MaskError("objdump is missing.", remedy="install binutils") from error
    if process.returncode != 0:
        raise MaskError("objdump could not disassemble an object of a peer.", given=str(path))
    return " ".join(found).encode()


def check(objects: Iterable[Path]) -> list[str]:
    """Names of those of the objects that this process has loaded, all of whose cpuid instructions are masked.

    Raises:
        MaskError: an instruction is as it was.
    """
    bases: dict[tuple[int, int], int] = {}
    for line in Path("/proc/self/maps").read_text().splitlines():
        addresses, _, offset, _, inode, *name = line.split(maxsplit=5)
        if name and int(offset, 16) == 0 and inode != "0" and Path(name[0]).exists():
            status = Path(name[0]).stat()
            bases.setdefault((status.st_dev, status.st_ino), int(addresses.split("-")[0], 16))
    loaded = []
    for path in objects:
        status = path.stat()
        base = bases.get((status.st_dev, status.st_ino))
        if base is None:
            continue
        for address in cpuid_addresses(path):
            if ctypes.string_at(base + address, len(_UD2)) != _UD2:
                raise MaskError("A peer can still see the whole CPU.", given=f"{path.name}, instruction {address:#x}")
        loaded.append(path.name)
    return loaded
