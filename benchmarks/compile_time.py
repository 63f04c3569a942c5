"""How long compiling takes, and how much memory: one convolution, and a model of many kernels, nothing cached.

    python benchmarks/compile_time.py [--json]

Each measurement runs in a process of its own. The limits are those that the project promises on two cores.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

#: name -> (program that prints its seconds, limit in seconds)
PROGRAMS = {
    "one convolution, after import": (
        """
import qcompile as qc, tvm
from qcompile import catalogue
operator = catalogue.CATALOGUE[0].examples[0]
start = time.perf_counter()
qc.compile(operator)
""",
        1.5,
    ),
    "30 kernels of a model, with import": (
        """
start = time.perf_counter()
import qcompile as qc
operators = {
    f"layer{number}": qc.QuantizedLinearConvolution(
        qc.Tensor((1, 16 + 8 * number, 28, 28), "uint8"), qc.Tensor((32, 16 + 8 * number, 3, 3), "int8"),
        bias=True, filter_scale="per_channel", start_padding=(1, 1), end_padding=(1, 1))
    for number in range(30)
}
rng = np.random.default_rng(0)
constants = {
    name: {"filter": rng.integers(-128, 128, operator.filter.shape, dtype=np.int8), "input_scale": 0.02,
           "output_scale": 0.1, "filter_scale": 0.01, "bias": np.zeros(32, np.int32)}
    for name, operator in operators.items()
}
qc.compile(operators, "host", constants)
""",
        20.0,
    ),
    "qcompile --help": (
        """
import subprocess, sys
start = time.perf_counter()
subprocess.run([sys.executable, "-m", "qcompile", "--help"], check=True, stdout=subprocess.DEVNULL)
""",
        0.3,
    ),
}
PEAK_LIMIT = 1 << 30
_FRAME = """
import resource, time
import numpy as np
{program}
print(time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


@dataclass(frozen=True)
class Measurement:
    """One program: seconds and peak memory in bytes, with their limits."""

    name: str
    seconds: float
    limit_seconds: float
    peak_bytes: int
    limit_bytes: int

    @property
    def holds(self) -> bool:
        """Whether both limits hold."""
        return self.seconds <= self.limit_seconds and self.peak_bytes <= self.limit_bytes


def measure(name: str) -> Measurement:
    """Runs one program in a process of its own."""
    program, limit = PROGRAMS[name]
    environment = {**os.environ, "QCOMPILE_CACHE": "off", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", _FRAME.format(program=program)],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    seconds, peak = done.stdout.split()
    return Measurement(name, float(seconds), limit, int(peak), PEAK_LIMIT)


def main() -> int:
    """Prints the measurements; the exit status is 1 if a limit does not hold."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args()
    results = [measure(name) for name in PROGRAMS]
    if options.json:
        print(json.dumps([{**asdict(result), "holds": result.holds} for result in results], indent=1))
    else:
        for result in results:
            verdict = "holds" if result.holds else "DOES NOT HOLD"
            print(
                f"{result.name:36} {result.seconds:6.2f} s of {result.limit_seconds} s   "
                f"{result.peak_bytes / 2**20:5.0f} MiB of {result.limit_bytes / 2**20:.0f} MiB   {verdict}"
            )
    return 0 if all(result.holds for result in results) else 1


if __name__ == "__main__":
    raise SystemExit(main())
