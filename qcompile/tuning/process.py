"""A worker process, from its parent's side: questions and answers, time-outs, and why it died."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import site
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

#: what is run; the role follows
COMMAND = (sys.executable, "-m", "qcompile.tuning.worker")
_MAXIMUM_ANSWER = 1 << 20
_SHOWN_ERROR = 200


class WorkerFailure(Exception):  # noqa: N818 - what became of a candidate, more than an error
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
        role: as `tuning.worker` knows it.
        folder: for what it prints, and for its temporary files, which a worker that is killed leaves behind.
    """

    def __init__(self, role: str, folder: Path):
        self._role = role
        self._folder = folder
        self._errors = folder / f"{role}.txt"
        self._process: subprocess.Popen[bytes] | None = None
        self._received = b""

    @property
    def is_running(self) -> bool:
        """Whether there is a process."""
        return self._process is not None

    def start(self) -> None:
        """Starts the process."""
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(  # noqa: S603 - a list of arguments, no shell
                [*COMMAND, self._role], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
                env=_environment(self._folder), start_new_session=True,
            )  # fmt: skip
        self._received = b""

    def ask(self, message: dict[str, Any]) -> None:
        """Sends a message.

        Raises:
            WorkerFailure: the process has died.
        """
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            raise self._death() from None

    def answer(self, seconds: float) -> dict[str, Any]:
        """The next answer.

        Raises:
            WorkerFailure: none came in time, and the process was ended; or it has died.
        """
        assert self._process is not None
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        end = time.monotonic() + seconds
        poll = select.poll()
        poll.register(descriptor, select.POLLIN | select.POLLHUP)
        while b"\n" not in self._received:
            remaining = end - time.monotonic()
            if remaining <= 0:
                self.stop()
                raise WorkerFailure("time-out", f"no answer within {seconds:.3g} s")
            if len(self._received) > _MAXIMUM_ANSWER:
                self.stop()
                raise WorkerFailure("died", "the answer is too long")
            if poll.poll(1000 * remaining):
                chunk = os.read(descriptor, 65536)
                if not chunk:
                    raise self._death()
                self._received += chunk
        line, _, self._received = self._received.partition(b"\n")
        with contextlib.suppress(ValueError, RecursionError):
            answer = json.loads(line)
            if isinstance(answer, dict):
                return answer
        self.stop()
        raise WorkerFailure("died", "the answer is no JSON object")

    def stop(self) -> None:
        """Ends the process, and what it has started."""
        if self._process is None:
            return
        process, self._process = self._process, None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()

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
