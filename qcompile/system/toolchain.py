"""The C compiler: found, called without a shell, and its failures explained."""

from __future__ import annotations

import functools
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ..errors import ToolchainError
from .cache import cached
from .hashing import digest

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


def run_compiler(arguments: Sequence[str], folder: Path, purpose: str) -> None:
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


def compiler_identity() -> str:
    """The C compiler's command and what it says of its version: both may change what it makes of a source.

    Raises:
        ToolchainError: there is none, or it does not answer.
    """
    command = c_compiler()
    return " ".join(command) + "\n" + _version(tuple(command), _state(command[0]))


def _state(path: str) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_mtime_ns, status.st_size


@functools.lru_cache(maxsize=16)
def _version(command: tuple[str, ...], _: tuple[int, int]) -> str:
    try:
        done = subprocess.run(  # noqa: S603 - a list of arguments, no shell
            [*command, "--version"], env={**os.environ, "LC_ALL": "C"}, capture_output=True, text=True,
            timeout=_TIMEOUT_SECONDS, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolchainError(f"The C compiler does not say its version: {error}", given=command[0]) from error
    return done.stdout + done.stderr


def compiled(
    source: Path, flags: Sequence[str], purpose: str, *, headers: Sequence[Path] = (), libraries: Sequence[str] = ()
) -> bytes:
    """What the C compiler makes of a source, from the cache where the same compiler has compiled the same content.

    Args:
        source: the file; headers are found in its folder.
        flags: of the compiler; they say what is made.
        purpose: what the compiler could not do, for messages: "compile ...".
        headers: the files that the source includes, besides those of the system.
        libraries: flags behind the source, such as "-lm".

    Raises:
        ToolchainError: the compiler is missing or fails.
    """

    def make() -> bytes:
        with tempfile.TemporaryDirectory(prefix="qcompile-") as name:
            folder = Path(name)
            arguments = [*flags, f"-I{source.parent}", str(source), "-o", "output", *libraries]
            run_compiler(arguments, folder, purpose)
            return (folder / "output").read_bytes()

    contents = [path.read_bytes() for path in (source, *headers)]
    return cached(digest("compiled", compiler_identity(), flags, libraries, source.name, *contents), make)
