"""`qcompile bench`."""

from __future__ import annotations

import os
from dataclasses import asdict

import click

from . import output
from .arguments import bundle_argument, json_option, kernels_option


@click.command(
    epilog=output.examples(
        "qcompile bench model.qcb",
        "qcompile bench model.qcb --kernel conv1 --threads 1 --threads 4",
        "qcompile bench model.qcb --seconds 2 --json",
    )
)
@bundle_argument()
@kernels_option("Kernel to time; repeatable.  [default: all]")
@click.option(
    "--threads",
    type=click.IntRange(1, 256),
    multiple=True,
    metavar="N",
    help="Number of threads; repeatable.  [default: 1, and one for each core]",
)
@click.option(
    "--seconds",
    type=click.FloatRange(0, 3600),
    default=0.2,
    show_default=True,
    metavar="S",
    help="Time for each kernel and number of threads.",
)
@json_option()
def command(bundle: str, kernels: tuple[str, ...], threads: tuple[int, ...], seconds: float, as_json: bool) -> None:
    """Time the kernels of a bundle on this machine."""
    from ..checks.timing import measure
    from ..runtime.loader import load_bundle

    loaded = load_bundle(bundle)
    # a kernel that is asked for by two of its names is timed once
    chosen = {loaded[name].name: loaded[name] for name in kernels or loaded.names}
    counts = sorted(set(threads or (1, min(256, len(os.sched_getaffinity(0))))))
    with output.progress("timing") as progress:
        timings = measure(list(chosen.values()), threads=counts, seconds=seconds, progress=progress)
    if as_json:
        rows = [{**asdict(timing), "rate": timing.rate} for timing in timings]
        output.print_json({"bundle": bundle, "timings": rows})
        return
    output.print_table(
        {"kernel": "left", "operator": "left", "target": "left", "threads": "right", "median µs": "right",
         "rate": "right", "spread": "right"},
        [
            (
                *((timing.name, timing.operator, timing.target) if timing.threads == counts[0] else ("", "", "")),
                timing.threads,
                f"{timing.seconds * 1e6:.1f}",
                output.rate(timing.rate, timing.unit),
                f"{timing.spread:.0%}",
            )
            for timing in timings
        ],
    )  # fmt: skip
