"""tune(): measures how kernels are best scheduled on this machine, and writes records of it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .. import records as schedule_records
from ..backends import check_compiler, executor_of, targets
from ..constants.facts import Facts, facts_of
from ..errors import IncompatibleMachineError, InvalidOperatorError, InvalidTensorError, RecordsError, TuningError
from ..frontends.requests import Request, requests_of
from ..records.record import MAXIMUM_THREADS
from ..spec import Operator
from ..spec.values import canonical_values
from .laboratory import TIME_LIMIT, Laboratory
from .report import KernelReport, Progress, Report
from .session import Session, Settings, progress_of

if TYPE_CHECKING:
    from onnx import ModelProto

#: constants=: all tensors but the data
PARAMETERS = "parameters"


def tune(
    operators: Operator | Sequence[Operator] | Mapping[str, Operator] | str | os.PathLike[str] | bytes | ModelProto,
    target: str = "host",
    constants: str | Mapping[str, Any] | Sequence[Mapping[str, Any] | None] | None = None,
    *,
    records: str | os.PathLike[str],
    trials: int = 64,
    seconds: float | None = None,
    threads: int = 1,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    time_limit: float = TIME_LIMIT,
    seed: int = 0,
    progress: Callable[[Progress], None] | None = None,
) -> Report:
    """Searches for the fastest schedule of each kernel on this machine. `compile` follows the records that it writes.

    Every candidate is compared with the reference, bit for bit, before its time counts, and every one is recorded. Run
    again with the same file, it goes on where it stopped. An interrupt (Ctrl-C) ends it with the report so far.

    Args:
        operators: as in `compile`: operators, or the path of a model or of a TOML file.
        target: one target, which runs on this machine.
        constants: as in `compile`; only what the values prove about the weights matters, since tuning draws its own.
            None as a value stands for any. Or "parameters": all tensors of each operator but the data, of any value.
        records: the file of records; it is added to, or made.
        trials: candidates for each kernel, those of earlier runs included.
        seconds: limit of the time for all kernels together.
        threads: number of threads of a call.
        input_shapes: of a model.
        time_limit: seconds that one candidate may take to be built, and to be run.
        seed: of random values.
        progress: called after each candidate.

    Raises:
        QCompileError: a subclass says what is wrong.
    """
    requests = requests_of(operators, None if isinstance(constants, str) else constants, input_shapes)
    if isinstance(constants, str):
        requests = with_parameters_constant(requests, constants)
    return tune_requests(
        requests, target, records=records, trials=trials, seconds=seconds, threads=threads, time_limit=time_limit,
        seed=seed, progress=progress,
    )  # fmt: skip


def with_parameters_constant(requests: Sequence[Request], word: str = PARAMETERS) -> list[Request]:
    """The requests with all tensors constant but the data.

    Raises:
        InvalidTensorError: `word` is not "parameters".
    """
    if word != PARAMETERS:
        raise InvalidTensorError(
            "Invalid value for constants=.", given=repr(word)[:80], accepted=f"{PARAMETERS!r}, or mappings"
        )
    return [
        replace(
            request,
            constants={tensor.name: None for tensor in request.operator.tensors if tensor.role != "data"},
        )
        for request in requests
    ]


def tune_requests(
    requests: Sequence[Request],
    target: str = "host",
    *,
    records: str | os.PathLike[str],
    trials: int = 64,
    seconds: float | None = None,
    threads: int = 1,
    time_limit: float = TIME_LIMIT,
    seed: int = 0,
    progress: Callable[[Progress], None] | None = None,
) -> Report:
    """Tunes requests; see `tune`. Requests that differ in the values of constants alone are tuned once."""
    start = time.monotonic()
    settings = _settings(target, records, trials, threads, seed)
    _check_number("seconds", seconds, optional=True)
    _check_number("time_limit", time_limit)
    distinct = _distinct(requests)
    known = _records_of(settings.records)
    end = None if seconds is None else start + seconds
    reports: list[KernelReport] = []
    session: Session | None = None
    interrupted = False
    with Laboratory(time_limit) as laboratory:
        try:
            for number, (request, facts) in enumerate(distinct, 1):
                left = None if end is None else max(0.0, end - time.monotonic())
                share = None if left is None else time.monotonic() + left / (len(distinct) - number + 1)

                def tell(session: Session, step: str, number: int = number) -> None:
                    if progress is not None:
                        remaining = None if end is None else max(0.0, end - time.monotonic())
                        progress(progress_of(session, number, len(distinct), remaining, step))

                session = Session(settings, request, facts, known, laboratory, tell)
                session.run(share)
                reports.append(session.report())
                session = None
        except KeyboardInterrupt:
            interrupted = True
            if session is not None:
                session.stopped = "it was interrupted"
                reports.append(session.report())
    return Report(settings.hardware.name, settings.records, tuple(reports), time.monotonic() - start, interrupted)


def _settings(target: str, path: str | os.PathLike[str], trials: int, threads: int, seed: int) -> Settings:
    chosen = targets.resolve(target)
    if len(chosen) != 1:
        raise InvalidTensorError("Tuning is for one target.", given=", ".join(entry.name for entry in chosen))
    hardware = chosen[0]
    if not executor_of(hardware.kind).has_meaningful_times:
        raise TuningError(
            f"Kernels of {hardware.name} cannot be tuned.",
            given=f"hardware of kind {hardware.kind}, on which times say nothing about speed",
            remedy="compile without records; the rule's own knobs are used",
        )
    lacking = targets.missing(hardware)
    if lacking:
        raise IncompatibleMachineError(
            f"Kernels of {hardware.name} do not run on this machine, so that their times cannot be taken.",
            given=f"this machine lacks {', '.join(lacking)}",
            remedy="tune on such a machine, or for a target that `qcompile targets` marks",
        )
    for name, value, most in (
        ("trials", trials, 1_000_000),
        ("threads", threads, MAXIMUM_THREADS),
        ("seed", seed, 2**63),
    ):
        if type(value) is not int or not (name != "seed") <= value <= most:
            raise InvalidTensorError(
                f"Invalid value for {name}=.", given=repr(value)[:80], accepted=f"an integer up to {most}"
            )
    if not isinstance(path, (str, os.PathLike)):
        raise RecordsError("Invalid value for records=.", given=repr(path)[:80], accepted="the path of a file")
    check_compiler(hardware)
    given = os.fspath(target) if isinstance(target, (str, os.PathLike)) else os.fspath(target[0])
    name = hardware.name if given == "host" else given
    return Settings(hardware, name, os.fspath(path), trials, threads, seed)


def _check_number(name: str, value: float | None, optional: bool = False) -> None:
    if value is None and optional:
        return
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e9:
        raise InvalidTensorError(f"Invalid value for {name}=.", given=repr(value)[:80], accepted="seconds, more than 0")


def _distinct(requests: Sequence[Request]) -> list[tuple[Request, Facts]]:
    """The first request of each operator and set of constants, with what holds for all of them."""
    if not requests:
        raise InvalidOperatorError(
            "There is no quantized operator to tune.", remedy="`qcompile explain MODEL` says why for each node"
        )
    found: dict[tuple[str, tuple[str, ...]], tuple[Request, Facts]] = {}
    for request in requests:
        names = {tensor.name for tensor in request.operator.tensors}
        unknown = sorted(set(map(str, request.constants)) - names)
        if unknown or names <= set(request.constants):
            raise InvalidTensorError(
                f"The constants of kernel {request.name!r} do not fit.", given=", ".join(unknown or sorted(names)),
                accepted="tensors of the operator, but not all of them",
            )  # fmt: skip
        key = (request.operator.name, tuple(sorted(request.constants)))
        facts = _facts(request)
        first, known = found.get(key, (request, facts))
        found[key] = first, known.weakest(facts)
    return list(found.values())


def _facts(request: Request) -> Facts:
    """What the constants prove; those that are only named prove nothing."""
    given = {name: value for name, value in request.constants.items() if value is not None}
    return facts_of(request.operator, canonical_values(request.operator, given))


def _records_of(path: str) -> list[schedule_records.Record]:
    """The records of the file, which can be written after this."""
    known = schedule_records.read(path) if os.path.exists(path) else []
    schedule_records.append(path, [])
    return known
