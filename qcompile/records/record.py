"""A record: one way to schedule an operator that was tried, and how it went. Values of weights are no part of it."""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime, timezone
from typing import Any

from ..errors import QCompileError, RecordsError
from ..spec import naming

FORMAT = 1
#: "ok" has times; every other status has a cause
STATUSES = ("ok", "build error", "run error", "time-out", "wrong result")
#: "search": measured once; "final": measured in turns with the others of the best few
STAGES = ("search", "final")
MAXIMUM_TEXT = 1024
MAXIMUM_KNOBS = 64
MAXIMUM_THREADS = 256
_DATE = "%Y-%m-%dT%H:%M:%SZ"
_TARGET = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")

#: kernel, constants, target: what records have to share with a request
Key = tuple[str, tuple[str, ...], str]
#: rule, version and knobs: a place in the space of a search
Point = tuple[str, int, tuple[tuple[str, int], ...]]


@dataclass(frozen=True)
class Record:
    """One candidate and how it went.

    Args:
        kernel: name of the operator; `spec.naming.parse` gives the operator.
        constants: names of the tensors that were fixed, sorted.
        target: name of the target.
        rule, rule_version, knobs: the schedule.
        status: one of `STATUSES`.
        threads: number of threads of a call.
        versions: package -> version.
        cpu: model of the CPU that ran it.
        date: UTC, as in 2026-01-31T23:59:59Z.
        stage: one of `STAGES`.
        cause: why it failed, in short; "" for "ok".
        seconds: median time of a call; None where it failed.
        spread: (slowest - fastest) / median of the middle half of the calls; None where it failed.
        calls: number of timed calls.
        code: digest of the machine code; "" where there is none. Different knobs may lead to the same code.

    Raises:
        RecordsError: a field has the wrong type or an impossible value.
    """

    kernel: str
    constants: tuple[str, ...]
    target: str
    rule: str
    rule_version: int
    knobs: Mapping[str, int]
    status: str
    threads: int
    versions: Mapping[str, str]
    cpu: str
    date: str
    stage: str = "search"
    cause: str = ""
    seconds: float | None = None
    spread: float | None = None
    calls: int = 0
    code: str = ""

    def __post_init__(self) -> None:
        for field in ("kernel", "target", "rule", "status", "cpu", "date", "stage", "cause", "code"):
            value = getattr(self, field)
            _require(isinstance(value, str) and len(value) <= MAXIMUM_TEXT, field, value, "a short text")
        _require(self.status in STATUSES, "status", self.status, ", ".join(STATUSES))
        _require(self.stage in STAGES, "stage", self.stage, ", ".join(STAGES))
        _require(_TARGET.fullmatch(self.target) is not None, "target", self.target, "a target's name")
        _require(self.rule.isidentifier() and self.rule.isascii(), "rule", self.rule, "a rule's name")
        _require(re.fullmatch(r"[0-9a-f]{0,64}", self.code) is not None, "code", self.code, "hexadecimal digits")
        _require_integer("rule_version", self.rule_version, 0, 2**31)
        _require_integer("threads", self.threads, 1, MAXIMUM_THREADS)
        _require_integer("calls", self.calls, 0, 2**53)
        self._check_names()
        self._check_mappings()
        self._check_times()
        _require(_is_date(self.date), "date", self.date, "UTC, as in 2026-01-31T23:59:59Z")

    def _check_names(self) -> None:
        tensors = _tensors(self.kernel)
        _require(tensors is not None, "kernel", self.kernel, "a name of the grammar of qcompile.spec.naming")
        constants = self.constants
        is_texts = isinstance(constants, tuple) and all(isinstance(name, str) for name in constants)
        _require(
            is_texts and list(constants) == sorted(set(constants)), "constants", constants, "sorted names, each once"
        )
        for name in constants:
            _require(name in (tensors or ()), "constants", name, ", ".join(tensors or ()))

    def _check_mappings(self) -> None:
        knobs, versions = self.knobs, self.versions
        _require(isinstance(knobs, Mapping) and len(knobs) <= MAXIMUM_KNOBS, "knobs", knobs, "integers by name")
        for knob, value in knobs.items():
            is_name = isinstance(knob, str) and knob.isidentifier() and knob.isascii() and len(knob) <= 64
            _require(is_name, "knobs", knob, "integers by name")
            _require_integer(f"knobs.{knob}", value, -(2**63), 2**63)
        _require(isinstance(versions, Mapping) and len(versions) <= 16, "versions", versions, "texts by name")
        for name, version in versions.items():
            is_text = isinstance(name, str) and isinstance(version, str) and max(len(name), len(version)) <= 100
            _require(is_text, "versions", name, "texts by name")
        object.__setattr__(self, "knobs", dict(sorted(knobs.items())))
        object.__setattr__(self, "versions", dict(sorted(versions.items())))

    def _check_times(self) -> None:
        for field in ("seconds", "spread"):
            value = getattr(self, field)
            if value is None:
                _require(self.status != "ok", field, value, "a number, where the status is ok")
                continue
            is_number = type(value) in (int, float) and math.isfinite(value) and value >= 0
            _require(is_number, field, value, "a number of at least 0")
            _require(self.status == "ok", field, value, "null, where the status is not ok")
            object.__setattr__(self, field, float(value))
        is_timed = self.calls > 0 and (self.seconds or 0) > 0
        is_right = is_timed if self.status == "ok" else self.calls == 0
        _require(is_right, "calls", self.calls, "timed calls of more than 0 seconds; none where the status is not ok")
        _require(bool(self.cause) == (self.status != "ok"), "cause", self.cause, "why, where the status is not ok")

    @property
    def key(self) -> Key:
        """What it has to share with a request to be of use."""
        return self.kernel, self.constants, self.target

    @property
    def point(self) -> Point:
        """The schedule."""
        return self.rule, self.rule_version, tuple(self.knobs.items())

    @property
    def is_ok(self) -> bool:
        """Whether it was exact and has a time."""
        return self.status == "ok"

    def to_line(self) -> str:
        """One line of a file, without its end."""
        plain = {"format": FORMAT, **{field.name: getattr(self, field.name) for field in fields(self)}}
        return json.dumps(plain, separators=(",", ":"), allow_nan=False)


_FIELDS = {field.name for field in fields(Record)}


def parse(line: str) -> Record:
    """The record of a line from an untrusted file.

    Raises:
        RecordsError: the line is not a record, or one of a newer format.
    """
    try:
        values = json.loads(line, object_pairs_hook=_unique, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise RecordsError("Not a JSON object.", given=repr(line[:80])) from error
    if not isinstance(values, dict):
        raise RecordsError("A record is a JSON object.", given=repr(line[:80]))
    number = values.pop("format", None)
    if type(number) is not int or number != FORMAT:
        newer = type(number) is int and number > FORMAT
        raise RecordsError(
            "Unknown format of records.", given=repr(number)[:80], accepted=FORMAT,
            remedy="install the version of qcompile that wrote it" if newer else None,
        )  # fmt: skip
    if set(values) != _FIELDS:
        unknown, missing = sorted(set(values) - _FIELDS), sorted(_FIELDS - set(values))
        problem = f"The field {missing[0]!r} is missing." if missing else "A field is unknown."
        raise RecordsError(
            problem, given=repr((unknown or sorted(values))[:4])[:200], accepted=", ".join(sorted(_FIELDS))
        )
    if not isinstance(values["constants"], list):
        raise RecordsError("constants is invalid.", given=repr(values["constants"])[:80], accepted="a list of names")
    return Record(**{**values, "constants": tuple(values["constants"])})


def now() -> str:
    """The present time, as records have it."""
    return datetime.now(timezone.utc).strftime(_DATE)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise ValueError("a name stands twice in an object")
    return values


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


@functools.lru_cache(maxsize=4096)
def _tensors(kernel: str) -> tuple[str, ...] | None:
    """The names of the tensors of an operator; None where the name is not an operator's."""
    try:
        return tuple(tensor.name for tensor in naming.parse(kernel).tensors)
    except QCompileError:
        return None


def _is_date(text: str) -> bool:
    try:
        return datetime.strptime(text, _DATE).strftime(_DATE) == text
    except ValueError:
        return False


def _require(condition: bool, field: str, given: object, accepted: str) -> None:
    if not condition:
        raise RecordsError(f"{field} is invalid.", given=repr(given)[:200], accepted=accepted)


def _require_integer(field: str, value: object, low: int, high: int) -> None:
    is_inside = type(value) is int and low <= value <= high
    _require(is_inside, field, value, f"an integer of {low} to {high}")
