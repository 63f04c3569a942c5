"""`qcompile tune`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from . import output
from .application import INTERRUPTED
from .arguments import input_shape_option, json_option, kernels_option
from .tuning import failures, tuning_progress

if TYPE_CHECKING:
    from ..frontends.requests import Request
    from ..tuning.report import KernelReport, Report

_CHECK_FAILED = 1
#: a difference of times that is not worth a word
_UNSTEADY = 0.05


@click.command(
    epilog=output.examples(
        "qcompile tune model.onnx --records tuned.json",
        "qcompile tune layers.toml --records tuned.json --trials 200 --time 3600",
        "qcompile tune layers.toml --kernel conv1 --threads 4 --records tuned.json",
        "qcompile tune qmatmul_u8_s8_u8__m128n256k256 --constants parameters \\",
        "    --records tuned.json",
        "qcompile compile model.onnx --records tuned.json -o model.qcb",
    )
)
@click.argument("source", metavar="MODEL.onnx|OPS.toml|KERNEL")
@click.option("--records", required=True, metavar="FILE", help="File of records; it is added to, or made.")
@click.option(
    "--target", default="host", show_default=True, metavar="NAME", help="Target, which has to run on this machine."
)
@click.option(
    "--constants",
    type=click.Choice(["given", "parameters"]),
    default="given",
    show_default=True,
    help="Tensors that are fixed: those that the file gives (for an operator's name none), or all but the data.",
)
@click.option(
    "--trials",
    type=click.IntRange(1, 1_000_000),
    default=64,
    show_default=True,
    metavar="N",
    help="Candidates for each kernel, those of earlier runs included.",
)
@click.option(
    "--time",
    "seconds",
    type=click.FloatRange(0, 1e8, min_open=True),
    metavar="SECONDS",
    help="Limit for all kernels together.  [default: none]",
)
@click.option(
    "--threads",
    type=click.IntRange(1, 256),
    default=1,
    show_default=True,
    metavar="N",
    help="Number of threads of a call.",
)
@click.option(
    "--time-limit",
    type=click.FloatRange(0, 1e6, min_open=True),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="Time that one candidate may take to be built, and to be run.",
)
@kernels_option("Kernel to tune; repeatable.  [default: all]")
@input_shape_option()
@json_option()
@click.pass_context
def command(
    context: click.Context,
    source: str,
    records: str,
    target: str,
    constants: str,
    trials: int,
    seconds: float | None,
    threads: int,
    time_limit: float,
    kernels: tuple[str, ...],
    input_shapes: dict[str, tuple[int, ...]],
    as_json: bool,
) -> None:
    """Search for the fastest schedules on this machine, and record them.

    SOURCE is a model, a file of operators, or an operator's name as `qcompile explain` prints it. Every candidate is
    compared with the reference before its time counts. Run again with the same file of records, it goes on where it
    stopped; Ctrl-C ends it with what was found so far. `compile --records` follows the records.

    The exit status is 1 if a kernel has no exact candidate, 130 if it was interrupted.
    """
    from ..tuning.tune import tune_requests, with_parameters_constant

    requests = _requests(source, input_shapes, kernels)
    if constants == "parameters":
        requests = with_parameters_constant(requests)
    with tuning_progress() as progress:
        report = tune_requests(
            requests, target, records=records, trials=trials, seconds=seconds, threads=threads, time_limit=time_limit,
            progress=progress,
        )  # fmt: skip
    if as_json:
        output.print_json(report.to_dictionary())
    else:
        _print(report)
    is_complete = all(entry.best is not None for entry in report.kernels)
    context.exit(INTERRUPTED if report.interrupted else 0 if is_complete else _CHECK_FAILED)


def _requests(source: str, input_shapes: dict[str, tuple[int, ...]], kernels: tuple[str, ...]) -> list[Request]:
    from ..errors import UnknownNameError
    from ..frontends.requests import read_file, requests_of_operators
    from ..spec import naming

    if "__" in source and source.isidentifier() and not Path(source).exists():
        requests = requests_of_operators(naming.parse(source), None)
    else:
        requests = read_file(source, input_shapes).requests
    names = {name for request in requests for name in (request.name, *request.aliases)}
    for name in kernels:
        if name not in names:
            known = [request.name for request in requests]
            raise UnknownNameError(
                f"{source} has no kernel of that name.",
                given=repr(name),
                accepted=", ".join(known[:20]) + (", ..." if len(known) > 20 else ""),
            )
    return [request for request in requests if not kernels or {request.name, *request.aliases} & set(kernels)]


def _print(report: Report) -> None:
    for entry in report.kernels:
        output.print_line(entry.name)
        output.print_fields(_fields(entry), indent=2)
    output.print_line()
    output.print_line(f"{report.records}: {report.target}, {report.seconds:.1f} s")


def _fields(entry: KernelReport) -> list[tuple[str, str]]:
    fields = [("operator", entry.kernel)] if entry.kernel != entry.name else []
    fields.append(("constants", ", ".join(entry.constants) or "none"))
    for label, record in (("default", entry.default), ("best", entry.best)):
        rate = entry.rate(record)
        if record is None or record.seconds is None or rate is None:
            fields.append((label, "no exact result"))
            continue
        knobs = ", ".join(f"{knob}={value}" for knob, value in record.knobs.items())
        time = f"{record.seconds * 1e6:.1f} µs, {output.rate(rate, entry.unit)}, {record.rule} {knobs}"
        fields.append((label, time))
    if entry.speed_up is not None:
        fields.append(("speed-up", f"{entry.speed_up:.2f}, with {output.counted(entry.threads, 'thread')}"))
    if entry.drift is not None and abs(entry.drift - 1) > _UNSTEADY:
        again = f"measured again, the best took {entry.drift:.2f} times as long: is the machine quiet?"
        fields.append(("unsteady", again))
    trials = f"{entry.trials_new} new, {entry.trials_resumed} of earlier runs, of {entry.space} candidates"
    fields.append(("trials", trials))
    fields += [("failed", f"{count}: {status}") for status, count in failures(entry.statuses)]
    fields.append(("ended", entry.stopped))
    return fields
