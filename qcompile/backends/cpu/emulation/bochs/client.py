"""Emulated kernel libraries, from the side of the process that uses them; the emulation is done in a worker.

There is one worker for each CPU model. It is started when it is first needed, serves all libraries and threads of this
process one after the other, and is replaced when it has died or taken much memory.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import importlib.util
import os
import platform
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ..... import errors
from .....errors import EmulationError
from .....system.processes import Worker, WorkerFailure
from .....system.toolchain import compiled
from ....interface import LibraryArgument, RunOptions
from .models import MODELS

#: resident bytes of a worker after which another takes its place
MAXIMUM_RESIDENT = 2 << 30
PYTHON_VERSIONS = ((3, 10), (3, 13))
#: what pip installs: the version whose symbols and faults the shim knows
PACKAGE = "bochscpu-python==0.4.0"

_SOURCE = Path(__file__).resolve().parent / "native" / "bochs_shim.c"
_COMPILE_FLAGS = ("-std=c11", "-O2", "-fPIC", "-shared", "-g0")
_START_SECONDS = 60.0


def open_library(content: bytes | memoryview, cpu: str, name: str) -> EmulatedLibrary:
    """A kernel library for x86-64 on the CPU model `cpu`. See `interface.open_library`."""
    return EmulatedLibrary(bytes(content), cpu, name)


class EmulatedLibrary:
    """A kernel library that runs in the worker of a CPU model.

    It may be used by several threads, whose runs wait for each other.

    Args:
        content: the bytes of the shared library.
        cpu: the CPU model.
        name: what messages call the library.

    Raises:
        EmulationError: the emulator is missing, the CPU model unknown, or the library damaged.
    """

    def __init__(self, content: bytes, cpu: str, name: str):
        self._content = content
        self._cpu = cpu
        self._name = name
        self._key = hashlib.sha256(content).hexdigest()
        self._counts = threading.local()
        with self._opened() as (_, answer):
            self.kernel_count = int(answer["kernel_count"])

    @property
    def instructions(self) -> int:
        """Instructions of the last run in this thread."""
        return getattr(self._counts, "instructions", 0)

    def arguments(self, index: int) -> list[LibraryArgument]:
        """The inputs and outputs of a kernel as the library's table has them, in order."""
        with self._opened() as (emulator, _):
            answer = emulator.ask({"do": "arguments", "key": self._key, "index": index})
        return [LibraryArgument(**{**entry, "shape": tuple(entry["shape"])}) for entry in answer["arguments"]]

    def run(self, index: int, inputs: Sequence[Any], outputs: Sequence[Any], options: RunOptions) -> None:
        """Runs a kernel, in one thread whatever `options` say.

        Raises:
            KernelError: the kernel reports a failure.
            EmulationError: the kernel does what it must not do, or the emulator has died.
        """
        given = [_bytes_of(array) for array in inputs if array is not None]
        numbers = iter(range(len(given)))
        message = {
            "do": "run", "key": self._key, "index": index,
            "inputs": [-1 if array is None else next(numbers) for array in inputs],
            "outputs": [array.nbytes for array in outputs],
        }  # fmt: skip
        with self._opened() as (emulator, _):
            answer = emulator.ask(message, given, [_bytes_of(array) for array in outputs])
        self._counts.instructions = int(answer["instructions"])

    def time(self, index: int, inputs: Sequence[Any], outputs: Sequence[Any], options: RunOptions) -> float | None:
        """None: an emulated CPU has no clock, and the caller's tells how fast the emulator is."""
        return None

    @contextlib.contextmanager
    def _opened(self) -> Iterator[tuple[_Emulator, dict[str, Any]]]:
        """The emulator, for this thread alone, with the library open, and what was said when it was opened."""
        emulator = _emulator(self._cpu)
        with emulator.lock:
            yield emulator, emulator.open(self._key, self._content, self._name)


class _Emulator:
    """The worker of a CPU model. Whoever uses it holds its lock."""

    def __init__(self, cpu: str):
        self.lock = threading.RLock()
        self._cpu = cpu
        self._worker: Worker | None = None
        self._folder: Path | None = None
        self._opened: dict[str, dict[str, Any]] = {}
        self._resident = 0
        self._needs_restart = False

    def open(self, key: str, content: bytes, name: str) -> dict[str, Any]:
        """Sees to it that there is a worker and that it has a library. Returns its answer about the library."""
        needs_restart = self._needs_restart or self._resident > MAXIMUM_RESIDENT
        if self._worker is not None and (needs_restart or not self._worker.is_alive):
            self.stop()
        if self._worker is None:
            self._start()
        if key not in self._opened:
            self._opened[key] = self.ask({"do": "open", "key": key, "name": name}, [memoryview(content)])
        return self._opened[key]

    def ask(
        self,
        message: dict[str, Any],
        contents: Sequence[memoryview] = (),
        results: Sequence[memoryview] = (),
        seconds: float | None = None,
    ) -> dict[str, Any]:
        """The worker's answer.

        Args:
            message: the question.
            contents: bytes that follow it.
            results: filled with the bytes that follow the answer.
            seconds: how long the answer may take.

        Raises:
            EmulationError: the worker has died, or answers with that error.
            QCompileError: it answers with another one.
        """
        assert self._worker is not None
        try:
            self._worker.ask({**message, "bytes": [len(content) for content in contents]}, contents)
            answer = self._worker.answer(seconds)
            if "error" not in answer:
                for result in results:
                    self._worker.receive_into(result)
        except WorkerFailure as failure:
            self.stop()
            raise EmulationError(f"The emulator of {self._cpu} has died: {failure.cause}.") from failure
        except BaseException:  # such as an interrupt: the rest of the answer would be taken for the next one
            self.stop()
            raise
        self._resident = int(answer["memory"])
        self._needs_restart = bool(answer["needs_restart"])
        if "error" in answer:
            error = answer["error"]
            if error["kind"] in ("EmulationError", "EmulationFaultError"):
                self._opened.pop(message.get("key", ""), None)
            kind = getattr(errors, error.pop("kind"))
            raise kind(error.pop("problem"), **error)
        return answer

    def stop(self) -> None:
        """Ends the worker."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.stop()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._opened = {}
        self._resident = 0
        self._needs_restart = False

    def detach(self) -> None:
        """In a child process: the worker is the parent's."""
        if self._worker is not None:
            self._worker.detach()

    def _start(self) -> None:
        check_installed()
        shim = _shim()
        self._folder = Path(tempfile.mkdtemp(prefix="qcompile-emulation-"))
        command = (sys.executable, "-m", "qcompile.backends.cpu.emulation.bochs.worker", self._cpu, str(os.getpid()))
        self._worker = Worker(command, self._folder, "worker")
        self._worker.start()
        try:
            self.ask({"do": "start"}, [memoryview(shim)], seconds=_START_SECONDS)
        except BaseException:
            self.stop()
            raise


_emulators: dict[str, _Emulator] = {}
_emulators_lock = threading.Lock()


def _emulator(cpu: str) -> _Emulator:
    if cpu not in MODELS:
        raise EmulationError("Unknown CPU model to emulate.", given=repr(cpu)[:80], accepted=", ".join(MODELS))
    with _emulators_lock:
        return _emulators.setdefault(cpu, _Emulator(cpu))


def stop_all() -> None:
    """Ends all workers; they start again when they are needed."""
    for emulator in list(_emulators.values()):
        emulator.stop()


def _after_fork() -> None:
    global _emulators_lock
    _emulators_lock = threading.Lock()  # another thread may have held it
    for emulator in _emulators.values():
        emulator.detach()
    _emulators.clear()


atexit.register(stop_all)
os.register_at_fork(after_in_child=_after_fork)


def check_installed() -> None:
    """Raises EmulationError unless bochscpu is installed."""
    if importlib.util.find_spec("bochscpu") is not None:
        return
    first, last = PYTHON_VERSIONS
    version, machine = sys.version_info[:2], platform.machine()
    if sys.platform != "linux" or machine != "x86_64" or not first <= version <= last:
        raise EmulationError(
            "The emulator bochscpu does not exist for this machine or this version of Python.",
            given=f"Python {version[0]}.{version[1]} on {sys.platform} {machine}",
            accepted=f"Python {first[0]}.{first[1]} to {last[0]}.{last[1]} on linux x86_64",
        )
    raise EmulationError("The emulator bochscpu is not installed.", remedy=f"pip install {PACKAGE}")


def _shim() -> bytes:
    """The compiled shim."""
    return compiled(_SOURCE, _COMPILE_FLAGS, "prepare the emulator", libraries=("-lpthread",))


def _bytes_of(array: Any) -> memoryview:
    return memoryview(array.reshape(-1).view("u1"))
