"""Tunes the layers of suites, as the records of the package were made.

    python benchmarks/tune.py --suite layers --types u8s8 --trials 48 --records layers.json
    qcompile records export layers.json -o schedules

Nothing else should run on the machine meanwhile. Started again with the same file, it goes on where it stopped.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from operands import TYPES
from suites import QUANTIZE, SUITES, cases

import qcompile as qc
from qcompile.errors import QCompileError
from qcompile.tuning.report import Progress


def main() -> int:
    """Tunes, and prints a line for each kernel."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--suite", action="append", help=f"default: layers; {', '.join(SUITES)}, or a file of layers")
    parser.add_argument("--types", default="u8s8", help=f"with commas: {', '.join(TYPES)} (default: u8s8)")
    parser.add_argument("--layout", action="append", choices=("NHWC", "NCHW"), help="default: both")
    parser.add_argument("--target", default="host", help="default: host")
    parser.add_argument("--threads", type=int, default=1, help="of a call (default: 1)")
    parser.add_argument("--trials", type=int, default=48, help="candidates for each kernel (default: 48)")
    parser.add_argument("--records", type=Path, required=True, help="file of records, made or added to")
    options = parser.parse_args()
    types = options.types.split(",")
    if unknown := [kind for kind in types if kind not in TYPES]:
        parser.error(f"unknown types {', '.join(unknown)}; accepted: {', '.join(TYPES)}")
    wanted = {
        case.operator.name: case.operator
        for suite in options.suite or ["layers"]
        for case in cases(suite, [""] if suite == QUANTIZE else types, options.layout or ["NHWC", "NCHW"])
    }

    def tell(progress: Progress) -> None:
        if not sys.stderr.isatty():
            return
        print(f"\r[{progress.number}/{progress.count}] {progress.trials}/{progress.budget}", end="", file=sys.stderr)

    try:
        report = qc.tune(
            list(wanted.values()), options.target, "parameters", records=options.records, trials=options.trials,
            threads=options.threads, progress=tell,
        )  # fmt: skip
    except QCompileError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(file=sys.stderr)
    for kernel in report.kernels:
        gain = f"{kernel.speed_up:.2f}" if kernel.speed_up is not None else "-"
        print(f"{gain:>5}  {kernel.kernel}  {dict(kernel.statuses)}  {kernel.stopped}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
