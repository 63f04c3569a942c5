"""What this machine's CPU can do, in the names that target files use."""

from __future__ import annotations

import contextlib
import functools
import platform
from pathlib import Path

#: Linux's name in /proc/cpuinfo -> ours, where they differ.
_NAMES = {
    "abm": "lzcnt",
    "pni": "sse3",
    "avx512_vnni": "avx512vnni",
    "avx_vnni": "avxvnni",
    "asimddp": "dotprod",
    "asimd": "neon",
}


def architecture() -> str:
    """The machine's name, as in `uname -m`: "x86_64", "aarch64", ..."""
    machine = platform.machine().lower()
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(machine, machine)


@functools.cache
def model() -> str:
    """The CPU's model, with family and number where they are known; the architecture where nothing is."""
    wanted = ("model name", "cpu family", "model", "cpu implementer", "cpu part")
    facts: dict[str, str] = {}
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip().lower() in wanted:
                facts.setdefault(key.strip().lower(), " ".join(value.split()))
    name = facts.pop("model name", architecture())
    numbers = ", ".join(f"{key} {facts[key]}" for key in wanted if key in facts)
    return (f"{name} ({numbers})" if numbers else name)[:200]


@functools.cache
def features() -> frozenset[str]:
    """The CPU's features that the operating system lets programs use; empty where they are unknown."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")
    except OSError:
        return frozenset()
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip().lower() in ("flags", "features"):
            return frozenset(_NAMES.get(word, word) for word in value.split())
    return frozenset()


def missing(wanted_architecture: str, wanted_features: tuple[str, ...]) -> list[str]:
    """What this machine lacks of what is wanted; empty where it runs."""
    if wanted_architecture != architecture():
        return [f"architecture {wanted_architecture} (this machine is {architecture()})"]
    return [feature for feature in wanted_features if feature not in features()]
