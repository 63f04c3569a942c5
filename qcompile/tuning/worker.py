"""A worker process: `python -m qcompile.tuning.worker builder|runner`.

It reads one JSON object a line on its standard input and answers with one or several on its standard output. What
compilers or kernels print goes to standard error. It ends with its input, or with its parent.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from collections.abc import Iterator
from typing import Any, Protocol

_PR_SET_PDEATHSIG = 1


class Role(Protocol):
    """What a worker does."""

    def answers(self, message: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The answers to a message, as they become known."""


def role(name: str) -> Role:
    """The role of a name; only what it needs is imported."""
    if name == "builder":
        from .builder import Builder

        return Builder()
    from .runner import Runner

    return Runner()


def main() -> None:
    """Serves until the input ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    channel = os.dup(1)
    os.dup2(2, 1)
    worker = role(sys.argv[1])
    for line in sys.stdin.buffer:
        for answer in worker.answers(json.loads(line)):
            os.write(channel, json.dumps(answer).encode() + b"\n")


if __name__ == "__main__":
    main()
