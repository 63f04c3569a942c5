"""`qcompile verify`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from . import output
from .arguments import bundle_argument, json_option

if TYPE_CHECKING:
    from ..verification import Verification


@click.command(
    epilog=output.examples(
        "qcompile verify model.qcb",
        "qcompile verify model.qcb --rounds 20 --seed 7 --json",
        "qcompile verify model.qcb --emulate",
    )
)
@bundle_argument()
@click.option(
    "--rounds", type=click.IntRange(1), default=2, show_default=True, metavar="N", help="Random inputs per kernel."
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, metavar="N", help="Of the random inputs.")
@click.option("--emulate", is_flag=True, help="Check the variants for other CPUs too, in emulation.")
@json_option()
@click.pass_context
def command(context: click.Context, bundle: str, rounds: int, seed: int, emulate: bool, as_json: bool) -> None:
    """Compare every kernel with the NumPy reference, bit for bit, on this machine.

    --emulate also checks what was compiled for CPUs that this machine does not have; it needs the package bochscpu. The
    exit status is 1 if a kernel is not exact.
    """
    from ..runtime.loader import load_bundle
    from ..verification import verify

    loaded = load_bundle(bundle)
    with output.progress("verifying") as progress:
        results = verify(loaded, rounds=rounds, seed=seed, emulate=emulate, progress=progress)
    checked = {result.target for result in results}
    left_out = [target for target in loaded.targets if target not in checked]
    is_exact = all(result.is_exact for result in results)
    if as_json:
        kernels = [{**asdict(result), "is_exact": result.is_exact} for result in results]
        output.print_json({"bundle": bundle, "is_exact": is_exact, "kernels": kernels, "not_checked": left_out})
    else:
        _print(results, left_out)
    context.exit(0 if is_exact else 1)


def _print(results: list[Verification], left_out: list[str]) -> None:
    rows = [
        (
            result.name,
            result.target,
            f"emulated ({result.emulated_cpu})" if result.emulated_cpu else "native",
            result.elements,
            "exact" if result.is_exact else f"{result.wrong} wrong",
        )
        for result in results
    ]
    columns = {"kernel": "left", "target": "left", "run": "left", "elements": "right", "result": "left"}
    output.print_table(columns, rows)
    wrong = [result for result in results if not result.is_exact]
    for result in wrong:
        output.print_line()
        output.print_line(f"{result.name}: {result.detail}")
    output.print_line()
    summary = f"{len(results) - len(wrong)} of {output.counted(len(results), 'kernel')} exact"
    output.print_line(summary + (f", {len(wrong)} wrong" if wrong else ""))
    if left_out:
        output.print_line(f"not checked: {', '.join(left_out)}, which this machine cannot run; --emulate checks them")
