"""The process that emulates: `python -m qcompile.backends.cpu.emulation.bochs.worker CPU PARENT`.

It reads messages on its standard input, JSON lines that raw bytes may follow, and answers each on its standard output
in the same form. It ends with its input, or with its parent. What it is given is untrusted.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, BinaryIO

from .....errors import EmulationError, QCompileError
from .machine import Bochs
from .models import MODELS
from .program import Program

#: errors that the parent raises again
ERRORS = {"BundleError", "EmulationError", "EmulationFaultError", "KernelError"}


class Service:
    """Answers messages.

    Args:
        cpu: the CPU model.
        parent: the process that this one ends with.
    """

    def __init__(self, cpu: str, parent: int):
        self._cpu = cpu
        self._parent = parent
        self._machine: Bochs | None = None
        self._programs: dict[str, Program] = {}

    @property
    def needs_restart(self) -> bool:
        """Whether another process should take the place of this one."""
        return self._machine is not None and self._machine.memory.needs_restart

    def answer(self, message: dict[str, Any], contents: Sequence[bytes]) -> tuple[dict[str, Any], list[bytes]]:
        """The answer to a message, and the bytes that follow it."""
        if message["do"] == "start":
            self._machine = Bochs(self._cpu, MODELS[self._cpu], contents[0])
            self._machine.watch(self._parent)
            return {}, []
        if self._machine is None:
            raise EmulationError("The emulator has not been started.")
        key = message["key"]
        if message["do"] == "open":
            if key not in self._programs:
                self._programs[key] = Program(self._machine, contents[0], message["name"])
            return {"kernel_count": self._programs[key].kernel_count}, []
        program = self._programs[key]
        try:
            if message["do"] == "arguments":
                return {"arguments": [asdict(argument) for argument in program.arguments(message["index"])]}, []
            before = self._machine.instructions
            inputs = [contents[position] if position >= 0 else None for position in message["inputs"]]
            outputs = program.run(message["index"], inputs, message["outputs"])
            return {"instructions": self._machine.instructions - before}, outputs
        except EmulationError:
            del self._programs[key]  # what it holds in memory is in no known state
            program.unload()
            raise


def described(error: QCompileError) -> dict[str, Any]:
    """An error as JSON values."""
    kind = type(error).__name__
    return {
        "kind": kind if kind in ERRORS else "EmulationError",
        "problem": error.problem,
        "given": None if error.given is None else str(error.given),
        "accepted": None if error.accepted is None else str(error.accepted),
        "remedy": error.remedy,
    }


def resident_bytes() -> int:
    """How much memory this process has."""
    with open("/proc/self/statm", encoding="ascii") as stream:
        return int(stream.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def serve(service: Service, questions: BinaryIO, answers: BinaryIO) -> None:
    """Answers until the questions end."""
    for line in questions:
        message = json.loads(line)
        contents = [questions.read(size) for size in message.get("bytes", [])]
        try:
            answer, following = service.answer(message, contents)
        except QCompileError as error:
            answer, following = {"error": described(error)}, []
        answer["memory"] = resident_bytes()
        answer["needs_restart"] = service.needs_restart
        answers.write(json.dumps(answer).encode() + b"\n")
        for content in following:
            answers.write(content)
        answers.flush()


def main() -> None:
    """Serves until the input ends."""
    answers = open(os.dup(1), "wb")  # noqa: SIM115 - it lives as long as the process
    os.dup2(2, 1)
    status = 1
    try:
        serve(Service(sys.argv[1], int(sys.argv[2])), sys.stdin.buffer, answers)
        status = 0
    except Exception:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stderr.flush()
        os._exit(status)  # taking the emulator down would end in a crash


if __name__ == "__main__":
    main()
