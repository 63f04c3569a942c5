"""Tuning one kernel: search, measure, record, until the budget is spent; then the best few once more, in turns."""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace

from .. import records
from ..backends import executor_of
from ..backends.interface import Hardware
from ..checks.timing import unit_of
from ..constants.facts import Facts
from ..frontends.requests import Request
from ..planning import is_current
from ..records import Record
from ..records.record import now
from ..schedules.rule import check_knobs, load_rule
from ..system import tvm_versions
from ..version import __version__
from .laboratory import Laboratory, Outcome, Task
from .report import KernelReport, Progress
from .search import Search
from .space import Candidate, Space, space_of

#: where the first so many candidates all fail, the rest is not tried
HOPELESS = 8
#: so many of the best are measured once more, besides the default
_FINALISTS = 4
#: seconds of a limit that are kept for that
_FINAL_RESERVE = 4.0


@dataclass(frozen=True)
class Settings:
    """What holds for all kernels of a run.

    Args:
        hardware: the target.
        target: its name, or the path of its file.
        records: the file of records.
        trials: candidates for each kernel, with those of earlier runs.
        threads: number of threads.
        seed: of random values, and of a sample of a large space.
    """

    hardware: Hardware
    target: str
    records: str
    trials: int
    threads: int
    seed: int


class Session:
    """Tunes one kernel.

    Args:
        settings: of the run.
        request: the kernel; the values of its constants are not looked at.
        facts: what they prove.
        known: the records of the file.
        laboratory: measures.
        progress: called with the session and a word for what it does, after each candidate.
    """

    def __init__(
        self,
        settings: Settings,
        request: Request,
        facts: Facts,
        known: Sequence[Record],
        laboratory: Laboratory,
        progress: Callable[[Session, str], None],
    ):
        self.request = request
        self.space: Space = space_of(
            request.operator, settings.hardware, request.constants.keys(), settings.seed, facts
        )
        self._settings = settings
        self._facts = facts
        self._laboratory = laboratory
        self._progress = progress
        self._machine = executor_of(settings.hardware.kind).identity()
        self._constants = tuple(sorted(request.constants))
        self._candidates = {candidate.point: number for number, candidate in enumerate(self.space.candidates)}
        comparison = ((request.operator.name, self._constants, settings.hardware.name), settings.threads, self._machine)
        own = [record for record in known if records.comparison(record) == comparison and is_current(record)]
        self._latest = {record.point: record for record in map(_complete, records.latest(own))}
        self._resumed = len(self._latest)
        self.stopped = ""
        self.drift: float | None = None

    @property
    def statuses(self) -> Counter[str]:
        """How many candidates have each status."""
        return Counter(record.status for record in self._latest.values())

    @property
    def trials(self) -> int:
        """Candidates that have a record."""
        return self.statuses.total()

    @property
    def budget(self) -> int:
        """The number of trials that are to be made."""
        return min(self._settings.trials, len(self.space.candidates))

    @property
    def best(self) -> Record | None:
        """The best record."""
        usable = [record for record in self._latest.values() if record.is_ok]
        return min(usable, key=records.speed, default=None)

    @property
    def default(self) -> Record | None:
        """The record of what is taken without records."""
        record = self._latest.get(self.space.candidates[0].point)
        return record if record is not None and record.is_ok else None

    def run(self, end: float | None) -> None:
        """Searches until the budget is spent or `end` (of time.monotonic) is near, and compares the best."""
        self._laboratory.open(self._task(), self._outcomes_of_codes())
        search = self._search()
        start = time.monotonic()
        reserve = 0.0 if end is None else min(_FINAL_RESERVE, 0.3 * max(0.0, end - start))
        self._progress(self, "starting")
        self.stopped = self._hopeless() or "the budget is spent"
        while not self._hopeless() and self.trials < self._settings.trials:
            if end is not None and time.monotonic() >= end - reserve:
                self.stopped = "the time is over"
                break
            asked = search.ask(min(self._laboratory.batch, self._settings.trials - self.trials))
            if not asked:
                self.stopped = "every candidate was tried"
                break
            candidates = [self.space.candidates[number] for number in asked]
            best = self.best
            for position, outcome in self._laboratory.measure(candidates, best.seconds if best else None):
                self._keep([(candidates[position], outcome)], "search")
                search.tell(asked[position], outcome.seconds)
                self._progress(self, "searching")
            self.stopped = self._hopeless() or self.stopped
        self._compare_best()
        self._progress(self, "done")

    def report(self) -> KernelReport:
        """What is known now."""
        operator = self.request.operator
        return KernelReport(
            name=self.request.name,
            kernel=operator.name,
            constants=self._constants,
            operations=operator.operations,
            unit=unit_of(operator),
            threads=self._settings.threads,
            best=self.best,
            default=self.default,
            statuses=dict(self.statuses),
            trials_new=self.trials - self._resumed,
            trials_resumed=self._resumed,
            space=len(self.space.candidates),
            stopped=self.stopped,
            drift=self.drift,
        )

    def _task(self) -> Task:
        kernel, settings = self.request.operator.name, self._settings
        return Task(kernel, self._constants, self._facts, settings.target, settings.threads, settings.seed)

    def _search(self) -> Search:
        search = Search(self.space.coordinates, self.space.default_count)
        for record in self._latest.values():
            if record.point in self._candidates:
                search.tell(self._candidates[record.point], record.seconds)
        return search

    def _outcomes_of_codes(self) -> dict[str, Outcome]:
        """Outcomes of code that the same packages have made."""
        present = _versions()
        names = ("status", "cause", "seconds", "spread", "calls", "code")
        return {
            record.code: Outcome(**{name: getattr(record, name) for name in names})
            for record in self._latest.values()
            if record.code and record.versions == present
        }

    def _hopeless(self) -> str:
        """Why it makes no sense to go on; "" where it does."""
        statuses = self.statuses
        if statuses["ok"] or statuses.total() < min(HOPELESS, len(self.space.candidates)):
            return ""
        causes = Counter(f"{record.status}: {record.cause}" for record in self._latest.values())
        cause, count = causes.most_common(1)[0]
        return (
            f"all of the first {statuses.total()} candidates failed, {count} of them with {cause}; to try them again, "
            "let `qcompile records prune` forget failures, or use another file"
        )

    def _keep(self, outcomes: Sequence[tuple[Candidate, Outcome]], stage: str) -> None:
        """Records outcomes; they are on the disk when it returns."""
        new = [
            Record(
                kernel=self.request.operator.name,
                constants=self._constants,
                target=self._settings.hardware.name,
                rule=candidate.rule,
                rule_version=candidate.version,
                knobs=candidate.knobs,
                threads=self._settings.threads,
                versions=_versions(),
                cpu=self._machine,
                date=now(),
                stage=stage,
                **asdict(outcome),
            )
            for candidate, outcome in outcomes
        ]
        records.append(self._settings.records, new)
        self._latest |= {record.point: record for record in new}

    def _compare_best(self) -> None:
        """Measures the best few and the default in turns, unless this was done before."""
        default = self.default
        first = [default] if default is not None else []  # of equal code the default stands for the others
        distinct = {record.code: record for record in reversed([*first, *records.ranked(self._latest.values())])}
        finalists = sorted(distinct.values(), key=records.speed)[:_FINALISTS]
        finalists += [record for record in first if record not in finalists]
        if len(finalists) < 2 or all(record.stage == "final" for record in finalists):
            return
        self._progress(self, "comparing the best")
        candidates = [Candidate(record.rule, record.rule_version, record.knobs) for record in finalists]
        outcomes = self._laboratory.compare(candidates)
        if outcomes:
            times = [(new.seconds, old.seconds) for new, old in zip(outcomes, finalists, strict=True)]
            ratios = [new / old for new, old in times if new is not None and old is not None]
            self.drift = statistics.median(ratios) if ratios else None
            self._keep(list(zip(candidates, outcomes, strict=True)), "final")


def _complete(record: Record) -> Record:
    """The record with all knobs of its rule: those that came later have their default."""
    return replace(record, knobs=check_knobs(load_rule(record.rule), record.knobs, "the record"))


def _versions() -> dict[str, str]:
    return {"qcompile": __version__, "apache-tvm": tvm_versions.installed("apache-tvm") or "none"}


def progress_of(session: Session, number: int, count: int, remaining: float | None, step: str) -> Progress:
    """Where a session stands, for people."""
    best, default = session.best, session.default
    operator = session.request.operator
    return Progress(
        number, count, session.request.name, operator.operations, unit_of(operator), session.trials,
        session.budget, best.seconds if best else None, default.seconds if default else None,
        dict(session.statuses), remaining, step,
    )  # fmt: skip
