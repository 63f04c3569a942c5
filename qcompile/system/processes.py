"""A worker process, from its parent's side: questions and answers, time-outs, and why it died.

A message is a line of JSON, which raw bytes may follow.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import site
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_MAXIMUM_ANSWER = 1 << 20
_SHOWN_ERROR = 200
_PIECE = 1 << 16


class WorkerFailure(Exception):  # noqa: N818 - a task's outcome, not an error
    """The worker is gone.

    Args:
        status: "time-out" or "died".
        cause: in a few words.
    """

    def __init__(self, status: str, cause: str):
        self.status = status
        self.cause = cause
        super().__init__(cause)


class Worker:
    """One process, started when it is first needed and anew after it has died.

    Args:
        command: what is run.
        folder: for what it prints, and for its temporary files, which a worker that is killed leaves behind.
        name: of the file with what it prints.
    """

    def __init__(self, command: Sequence[str], folder: Path, name: str):
        self._command = list(command)
        self._folder = folder
        self._errors = folder / f"{name}.txt"
        self._process: subprocess.Popen[bytes] | None = None
        self._received = b""

    @property
    def is_running(self) -> bool:
        """Whether there is a process."""
        return self._process is not None

    @property
    def is_alive(self) -> bool:
        """Whether there is a process that has not ended."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Starts the process."""
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(  # noqa: S603 - a list of arguments, no shell
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, bufsize=0,
                env=_environment(self._folder), start_new_session=True,
            )  # fmt: skip
        self._received = b""

    def ask(self, message: dict[str, Any], buffers: Sequence[memoryview | bytes] = ()) -> None:
        """Sends a message, and bytes that follow it.

        Raises:
            WorkerFailure: the process has died.
        """
        assert self._process is not None
        assert self._process.stdin is not None
        descriptor = self._process.stdin.fileno()
        try:
            for content in (json.dumps(message).encode() + b"\n", *buffers):
                remaining = memoryview(content)
                while remaining:
                    remaining = remaining[os.write(descriptor, remaining) :]
        except OSError:
            raise self._death() from None

    def answer(self, seconds: float | None) -> dict[str, Any]:
        """The next answer; None waits as long as it takes.

        Raises:
            WorkerFailure: none came in time, and the process was ended; or it has died.
        """
        assert self._process is not None
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        end = None if seconds is None else time.monotonic() + seconds
        poll = select.poll()
        poll.register(descriptor, select.POLLIN | select.POLLHUP)
        while b"\n" not in self._received:
            remaining = None if end is None else end - time.monotonic()
            if remaining is not None and remaining <= 0:
                self.stop()
                raise WorkerFailure("time-out", f"no answer within {seconds:.3g} s")
            if len(self._received) > _MAXIMUM_ANSWER:
                self.stop()
                raise WorkerFailure("died", "the answer is too long")
            if poll.poll(None if remaining is None else 1000 * remaining):
                chunk = os.read(descriptor, _PIECE)
                if not chunk:
                    raise self._death()
                self._received += chunk
        line, _, self._received = self._received.partition(b"\n")
        with contextlib.suppress(ValueError, RecursionError):
            answer = json.loads(line)
            if isinstance(answer, dict):
                return answer
        self.stop()
        raise WorkerFailure("died", "the answer is not a JSON object")

    def receive_into(self, buffer: memoryview) -> None:
        """Fills a buffer with the bytes that follow an answer.

        Raises:
            WorkerFailure: the process has died.
        """
        assert self._process is not None
        assert self._process.stdout is not None
        known = min(len(buffer), len(self._received))
        buffer[:known] = self._received[:known]
        self._received = self._received[known:]
        while known < len(buffer):
            count = os.readv(self._process.stdout.fileno(), [buffer[known:]])
            if not count:
                raise self._death()
            known += count

    def stop(self) -> None:
        """Ends the process, and what it has started."""
        if self._process is None:
            return
        process, self._process = self._process, None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()

    def detach(self) -> None:
        """Lets go of the process without ending it: in a child that has inherited it from its parent."""
        if self._process is None:
            return
        process, self._process = self._process, None
        process.returncode = 0  # nobody here waits for it
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()

    def _death(self) -> WorkerFailure:
        assert self._process is not None
        try:
            status = self._process.wait(5)
        except subprocess.TimeoutExpired:
            status = None
        self.stop()
        if status is not None and status < 0:
            name = signal.Signals(-status).name
            note = ": perhaps too little memory" if name == "SIGKILL" else ""
            return WorkerFailure("died", f"the process was ended by {name}{note}")
        lines = self._errors.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        last = f": {lines[-1][:_SHOWN_ERROR]}" if lines else ""
        return WorkerFailure("died", f"the process ended with status {status}{last}")


def _environment(folder: Path) -> dict[str, str]:
    """Temporary files go to the folder. The package is found even where only this program knows its place."""
    environment = {**os.environ, "TMPDIR": str(folder)}
    place = str(Path(__file__).resolve().parents[2])
    if place not in (*site.getsitepackages(), site.getusersitepackages()):
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (environment.get("PYTHONPATH"), place)))
    return environment
