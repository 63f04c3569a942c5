"""What tuning found out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ..records import Record


@dataclass(frozen=True)
class Progress:
    """Where tuning stands, after each candidate.

    Args:
        number: of the kernel, from 1.
        count: number of kernels.
        name: the kernel.
        operations, unit: multiply-accumulates ("MAC") or elements ("element") of a call.
        trials: candidates that have a record, of this run or of earlier ones.
        budget: the number of trials that are to be made, or the whole space where that is less.
        best: the best time, in seconds; None where no candidate is exact yet.
        default: the time of the default; None where it is not known.
        statuses: status -> how many candidates.
        remaining: seconds that are left; None without a limit.
        step: what is being done, for people.
    """

    number: int
    count: int
    name: str
    operations: int
    unit: str
    trials: int
    budget: int
    best: float | None
    default: float | None
    statuses: Mapping[str, int]
    remaining: float | None
    step: str


@dataclass(frozen=True)
class KernelReport:
    """What tuning found out about one kernel.

    Args:
        name: the kernel's name in the request; `kernel` is that of its operator, `constants` are its fixed tensors.
        operations, unit: as in `Progress`.
        threads: number of threads.
        best: the record that is followed from now on; None where no candidate was exact.
        default: the record of the schedule that is taken without records; None where it has no exact one.
        statuses: status -> how many candidates, of this run and of earlier ones.
        trials_new, trials_resumed: candidates of this run, and of earlier ones.
        space: number of all candidates.
        stopped: why the search ended.
        drift: how much longer the best few took when they were measured again; None where they were not. Far from 1,
            the machine was not quiet.
    """

    name: str
    kernel: str
    constants: tuple[str, ...]
    operations: int
    unit: str
    threads: int
    best: Record | None
    default: Record | None
    statuses: Mapping[str, int]
    trials_new: int
    trials_resumed: int
    space: int
    stopped: str
    drift: float | None = None

    @property
    def speed_up(self) -> float | None:
        """Time of the default / time of the best; None where one of them is not known."""
        if self.best is None or self.default is None or self.best.seconds is None or self.default.seconds is None:
            return None
        return self.default.seconds / self.best.seconds

    def rate(self, record: Record | None) -> float | None:
        """Operations a second of a record, in units of 10^9."""
        if record is None or record.seconds is None:
            return None
        return self.operations / record.seconds / 1e9


@dataclass(frozen=True)
class Report:
    """What tuning found out.

    Args:
        target: name of the target.
        records: the file of records.
        kernels: a report for each kernel that was come to.
        seconds: time that it took.
        interrupted: whether it was interrupted.
    """

    target: str
    records: str
    kernels: tuple[KernelReport, ...]
    seconds: float
    interrupted: bool

    def to_dictionary(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "target": self.target,
            "records": self.records,
            "seconds": round(self.seconds, 3),
            "interrupted": self.interrupted,
            "kernels": [
                {
                    **{name: value for name, value in asdict(entry).items() if name not in ("best", "default")},
                    "constants": list(entry.constants),
                    "best": _of_record(entry, entry.best),
                    "default": _of_record(entry, entry.default),
                    "speed_up": entry.speed_up,
                }
                for entry in self.kernels
            ],
        }


def _of_record(report: KernelReport, record: Record | None) -> dict[str, Any] | None:
    if record is None:
        return None
    return {
        "rule": record.rule,
        "rule_version": record.rule_version,
        "knobs": dict(record.knobs),
        "seconds": record.seconds,
        "spread": record.spread,
        "rate": report.rate(record),
        "stage": record.stage,
    }
