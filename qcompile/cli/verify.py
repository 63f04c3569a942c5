"""`qcompile verify`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from . import output
from .arguments import bundle_argument, json_option

if TYPE_CHECKING:
    from ..checks.verification import Verification


@click.command(
    epilog=output.examples(
        "qcompile verify model.qcb",
        "qcompile verify model.qcb --rounds 20 --seed 7 --json",
        "qcompile verify model.qcb --emulate",
        "qcompile verify model.qcb --emulate-all --rounds 1",
    )
)
@bundle_argument()
@click.option(
    "--rounds", type=click.IntRange(1), default=2, show_default=True, metavar="N", help="Random inputs per kernel."
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, metavar="N", help="Of the random inputs.")
@click.option("--emulate", is_flag=True, help="Check the variants that this machine cannot run too, in emulation.")
@click.option("--emulate-all", is_flag=True, help="Check all variants in emulation.")
@json_option()
@click.pass_context
def command(
    context: click.Context, bundle: str, rounds: int, seed: int, emulate: bool, emulate_all: bool, as_json: bool
) -> None:
    """Compare every kernel with the NumPy reference, bit for bit, on this machine.

    --emulate also checks what was compiled for CPUs that this machine does not have; it needs what
    `pip install 'qcompile[emulate]'` installs. The exit status is 1 if a kernel is not exact.
    """
    from ..checks.verification import verify
    from ..runtime.loader import load_bundle

    loaded = load_bundle(bundle)
    how: bool | str = "always" if emulate_all else emulate
    with output.progress("verifying") as progress:
        results = verify(loaded, rounds=rounds, seed=seed, emulate=how, progress=progress)
    checked = {result.target for result in results}
    left_out = [target for target in loaded.targets if target not in checked]
    is_exact = all(result.is_exact for result in results)
    if as_json:
        kernels = [{**asdict(result), "is_exact": result.is_exact} for result in results]
        output.print_json({"bundle": bundle, "is_exact": is_exact, "kernels": kernels, "not_checked": left_out})
    else:
        _print(results, left_out, bool(how))
    context.exit(0 if is_exact else 1)


def _print(results: list[Verification], left_out: list[str], is_emulation_on: bool) -> None:
    rows = [
        (
            result.name,
            result.target,
            f"emulated ({result.emulated_cpu})" if result.emulated_cpu else "native",
            result.elements,
            "exact" if result.is_exact else "failed" if result.failure else f"{result.wrong} wrong",
        )
        for result in results
    ]
    columns = {"kernel": "left", "target": "left", "run": "left", "elements": "right", "result": "left"}
    output.print_table(columns, rows)
    wrong = [result for result in results if not result.is_exact]
    for result in wrong:
        output.print_line()
        output.print_line(f"{result.name} for {result.target}: {result.failure or result.detail}")
    output.print_line()
    kernels = len({result.name for result in results})
    noun = "kernel" if kernels == len(results) else "variant"
    summary = f"{len(results) - len(wrong)} of {output.counted(len(results), noun)} exact"
    if kernels < len(results):
        summary += f" ({output.counted(kernels, 'kernel')})"
    failed = sum(bool(result.failure) for result in wrong)
    counts = ((len(wrong) - failed, "wrong"), (failed, "failed"))
    output.print_line(summary + "".join(f", {count} {word}" for count, word in counts if count))
    if left_out:
        reason = (
            "whose CPU the bundle does not name" if is_emulation_on else "which this machine cannot run (--emulate)"
        )
        output.print_line(f"not checked: {', '.join(left_out)}, {reason}")
