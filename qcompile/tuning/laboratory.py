"""Builds candidates and measures them: a builder process and a runner process, never both at work."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from ..constants.facts import Facts
from ..errors import TuningError
from ..system.processes import Worker, WorkerFailure
from .space import Candidate

#: what is run; the role follows
COMMAND = (sys.executable, "-m", "qcompile.tuning.worker")
#: seconds that a candidate may take to be built, and to be run
TIME_LIMIT = 60.0
#: seconds until a worker is ready: imports, and the reference's result
_OPENING_LIMIT = 600.0
#: seconds of timing of a candidate
_SECONDS = 0.15
#: seconds of timing of each of the best few, in turns
_FINAL_SECONDS = 0.4
#: a worker takes so many candidates before another takes its place: libraries and compilers leave memory behind
_WORKER_LIFE = 100


@dataclass(frozen=True)
class Task:
    """What is measured: a kernel, which of its tensors are constant, what they prove, a target, a number of threads."""

    kernel: str
    constants: tuple[str, ...]
    facts: Facts
    target: str
    threads: int
    seed: int


@dataclass(frozen=True)
class Outcome:
    """What became of a candidate: the fields are those of `Record`."""

    status: str
    cause: str = ""
    seconds: float | None = None
    spread: float | None = None
    calls: int = 0
    code: str = ""


class Laboratory:
    """Two workers and a folder; a context that takes all of them away at its end.

    Args:
        time_limit: seconds that a candidate may take to be built, and to be run.
    """

    def __init__(self, time_limit: float = TIME_LIMIT):
        self._temporary = tempfile.TemporaryDirectory(prefix="qcompile-tuning-")
        self._folder = Path(self._temporary.name)
        self._builder = Worker((*COMMAND, "builder"), self._folder, "builder")
        self._runner = Worker((*COMMAND, "runner"), self._folder, "runner")
        self._lives = {"builder": 0, "runner": 0}
        self._opened: set[str] = set()
        self._time_limit = time_limit
        self._task: Task | None = None
        self._known: dict[str, Outcome] = {}

    def __enter__(self) -> Laboratory:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._builder.stop()
        self._runner.stop()
        self._temporary.cleanup()

    @property
    def batch(self) -> int:
        """How many candidates are best built together."""
        return 2 * len(os.sched_getaffinity(0))

    def open(self, task: Task, known: Mapping[str, Outcome]) -> None:
        """Turns to another task.

        Args:
            task: the task.
            known: digest of code -> its outcome: equal code is not measured again.
        """
        self._task = task
        self._known = dict(known)
        self._opened.clear()

    def measure(self, candidates: Sequence[Candidate], best: float | None) -> Iterator[tuple[int, Outcome]]:
        """Builds all candidates, then measures one after the other.

        Args:
            candidates: what to try.
            best: the best time so far; what is far behind is measured less thoroughly.

        Yields:
            (position, outcome) as they become known.
        """
        built = self._build(candidates)
        for number, outcome in built.items():
            if outcome.status != "ok":
                yield number, outcome
        for number, outcome in built.items():
            if outcome.status != "ok":
                continue
            result = self._known.get(outcome.code)
            if result is None:
                result = self._run(number, best)
                result = self._known[outcome.code] = replace(result, code=outcome.code)
            if result.seconds is not None:
                best = min(result.seconds, best or result.seconds)
            self._path(number).unlink()
            yield number, result

    def compare(self, candidates: Sequence[Candidate]) -> list[Outcome]:
        """Measures several candidates in turns; an empty list where that was not possible."""
        built = self._build(candidates)
        if any(outcome.status != "ok" for outcome in built.values()):
            return []
        assert self._task is not None
        paths = [str(self._path(number)) for number in range(len(candidates))]
        message = {"do": "compare", "paths": paths, "threads": self._task.threads, "seconds": _FINAL_SECONDS}
        try:
            self._ready(self._runner, "runner", len(candidates))
            self._runner.ask(message)
            results = self._runner.answer(self._time_limit * len(candidates))["results"]
        except WorkerFailure:
            return []
        finally:
            for number in range(len(candidates)):
                self._path(number).unlink()
        return [Outcome(**result, code=built[number].code) for number, result in enumerate(results)]

    def _path(self, number: int) -> Path:
        return self._folder / f"{number}.qcb"

    def _ready(self, worker: Worker, role: str, count: int) -> None:
        """A worker that has opened the task.

        Raises:
            TuningError: it cannot.
        """
        self._lives[role] += count
        if self._lives[role] > _WORKER_LIFE:
            worker.stop()
        if not worker.is_running:
            worker.start()
            self._lives[role] = count
            self._opened.discard(role)
        if role in self._opened:
            return
        assert self._task is not None
        task = self._task
        message = {"do": "open", "kernel": task.kernel, "constants": list(task.constants), "target": task.target,
                   "facts": asdict(task.facts), "seed": task.seed}  # fmt: skip
        try:
            worker.ask(message)
            answer = worker.answer(_OPENING_LIMIT)
        except WorkerFailure as failure:
            answer = {"cause": failure.cause}
        if "cause" in answer:
            raise TuningError(
                f"The {role} for {task.kernel} does not start: {answer['cause']}.",
                remedy="`qcompile targets` says whether kernels can be compiled here",
            )
        self._opened.add(role)

    def _build(self, candidates: Sequence[Candidate]) -> dict[int, Outcome]:
        """By number: "ok" with the code, or a failure. Who broke the builder is found out one by one."""
        outcomes = self._build_together(candidates, range(len(candidates)))
        for number in range(len(candidates)):
            if number not in outcomes:
                alone = self._build_together(candidates, [number])
                outcomes[number] = alone.get(number, self._broken)
        return dict(sorted(outcomes.items()))

    def _build_together(self, candidates: Sequence[Candidate], numbers: Sequence[int]) -> dict[int, Outcome]:
        """The outcomes of those that the builder finished; what broke it, if anything, is in `_broken`."""
        entries = [
            {
                "number": number,
                "rule": candidates[number].rule,
                "version": candidates[number].version,
                "knobs": dict(candidates[number].knobs),
                "path": str(self._path(number)),
            }
            for number in numbers
        ]
        outcomes: dict[int, Outcome] = {}
        self._ready(self._builder, "builder", len(entries))
        try:
            self._builder.ask({"do": "build", "candidates": entries})
            for _ in entries:
                answer = self._builder.answer(self._time_limit)
                outcomes[answer["number"]] = _built(answer)
        except WorkerFailure as failure:
            status = "time-out" if failure.status == "time-out" else "build error"
            self._broken = Outcome(status, f"while it was built: {failure.cause}")
        return outcomes

    def _run(self, number: int, best: float | None) -> Outcome:
        assert self._task is not None
        message = {"do": "measure", "path": str(self._path(number)), "threads": self._task.threads,
                   "seconds": _SECONDS, "best": best}  # fmt: skip
        self._ready(self._runner, "runner", 1)
        try:
            self._runner.ask(message)
            result = self._runner.answer(self._time_limit)
        except WorkerFailure as failure:
            status = "time-out" if failure.status == "time-out" else "run error"
            return Outcome(status, f"while it ran: {failure.cause}")
        return Outcome(**result)


def _built(answer: dict[str, Any]) -> Outcome:
    if "code" in answer:
        return Outcome("ok", code=answer["code"])
    return Outcome("build error", answer["cause"])
