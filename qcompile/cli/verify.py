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
    )
)
@bundle_argument()
@click.option(
    "--rounds", type=click.IntRange(1), default=2, show_default=True, metavar="N", help="Random inputs per kernel."
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, metavar="N", help="Of the random inputs.")
@json_option()
@click.pass_context
def command(context: click.Context, bundle: str, rounds: int, seed: int, as_json: bool) -> None:
    """Compare every kernel with the NumPy reference, bit for bit, on this machine.

    The exit status is 1 if a kernel is not exact.
    """
    from ..verification import verify

    with output.progress("verifying") as progress:
        results = verify(bundle, rounds=rounds, seed=seed, progress=progress)
    is_exact = all(result.is_exact for result in results)
    if as_json:
        kernels = [{**asdict(result), "is_exact": result.is_exact} for result in results]
        output.print_json({"bundle": bundle, "is_exact": is_exact, "kernels": kernels})
    else:
        _print(results)
    context.exit(0 if is_exact else 1)


def _print(results: list[Verification]) -> None:
    rows = [
        (result.name, result.target, result.elements, "exact" if result.is_exact else f"{result.wrong} wrong")
        for result in results
    ]
    output.print_table({"kernel": "left", "target": "left", "elements": "right", "result": "left"}, rows)
    wrong = [result for result in results if not result.is_exact]
    for result in wrong:
        output.print_line()
        output.print_line(f"{result.name}: {result.detail}")
    output.print_line()
    summary = f"{len(results) - len(wrong)} of {output.counted(len(results), 'kernel')} exact"
    output.print_line(summary + (f", {len(wrong)} wrong" if wrong else ""))
