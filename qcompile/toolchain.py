"""The C compiler: found, called without a shell, and its failures explained."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path

from .errors import ToolchainError

_CANDIDATES = ("cc", "gcc", "clang")
_TIMEOUT_SECONDS = 300


def c_compiler() -> list[str]:
    """The command of the C compiler: the environment variable CC, else cc, gcc or clang.

    Raises:
        ToolchainError: there is none.
    """
    chosen = os.environ.get("CC")
    names = [chosen] if chosen else list(_CANDIDATES)
    for name in names:
        words = shlex.split(name)
        path = shutil.which(words[0]) if words else None
        if path is not None:
            return [path, *words[1:]]
    raise ToolchainError(
        "No C compiler was found; it links compiled kernels, and prepares the emulator.",
        given=f"CC={chosen}" if chosen else f"none of {', '.join(_CANDIDATES)} on the PATH",
        remedy="install gcc or clang (Debian: apt-get install gcc libc6-dev), or set CC to a compiler",
    )


def run_compiler(arguments: list[str], folder: Path, purpose: str) -> None:
    """Runs the C compiler in `folder`.

    Raises:
        ToolchainError: it is missing, fails or does not end.
    """
    command = [*c_compiler(), *arguments]
    environment = {**os.environ, "LC_ALL": "C", "SOURCE_DATE_EPOCH": "0"}
    try:
        done = subprocess.run(  # noqa: S603 - a list of arguments, no shell
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolchainError(f"The C compiler could not {purpose}: {error}", given=command[0]) from error
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise ToolchainError(
            "\n".join([f"The C compiler could not {purpose} (exit status {done.returncode}).", *lines[:12]]),
            given=command[0],
            remedy="check that the compiler targets this machine and that libc's headers are installed",
        )
