"""Compiles the quantized digit classifier for this machine, verifies it, and classifies digits with its kernels.

    python examples/digits/run.py [--model digits_qdq_int8.onnx] [--target x86_64] [--output digits.qcb]

The exit status is 1 if a kernel is not exact.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

import qcompile as qc
from qcompile.checks import timing

FOLDER = Path(__file__).resolve().parent


def main() -> int:
    """Runs the example; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="digits_int8.onnx", help="a model in the folder of this script")
    parser.add_argument("--target", default="host", help="a name that `qcompile targets` lists (default: host)")
    parser.add_argument("--output", type=Path, help="where to save the bundle (default: nowhere)")
    options = parser.parse_args()

    model = FOLDER / options.model
    with np.load(FOLDER / "digits_test.npz") as test:
        images = test["images"][:, None].astype(np.float32) / np.float32(16)
        labels = test["labels"]
    shapes = {"image": images.shape}

    start = time.perf_counter()
    bundle = qc.compile(model, target=options.target, input_shapes=shapes)
    print(f"compiled {len(bundle)} kernels of {model.name} in {time.perf_counter() - start:.1f} s")
    if options.output:
        bundle.save(options.output)
        print(f"saved {options.output}")

    results = qc.verify(bundle)
    for result in results:
        if not result.is_exact:
            print(f"{result.name}: {result.detail}")
    exact = sum(result.is_exact for result in results)
    print(f"verified: {exact} of {len(results)} kernels equal the reference bit for bit")

    run = qc.run_onnx(model, bundle, {"image": images}, input_shapes=shapes)
    accuracy = float(np.mean(run["scores"].argmax(axis=1) == labels))
    print(f"accuracy: {accuracy:.2%} of {len(labels)} digits that the network never saw")
    print(f"run by compiled kernels: {', '.join(run.by_kernels)}")
    print(f"run by onnxruntime:      {', '.join(run.by_others) or 'nothing'}")

    _print_speed(bundle)
    return 0 if exact == len(results) else 1


def _print_speed(bundle: qc.Bundle) -> None:
    targets = ", ".join(sorted({kernel.variant.target for kernel in bundle}))
    table = Table(title=f"One call with {bundle_batch(bundle)} images in one thread, target {targets}")
    for heading, justify in (("kernel", "left"), ("operations", "right"), ("time", "right"), ("speed", "right")):
        table.add_column(heading, justify=justify)  # type: ignore[arg-type]
    for entry in timing.measure(list(bundle), threads=[1], seconds=0.1):
        unit = "MAC" if entry.unit == "MAC" else "elements"
        operations = f"{entry.operations:,} {unit}"
        table.add_row(entry.name, operations, f"{entry.seconds * 1e6:.0f} µs", f"{entry.rate:.2f} G{unit}/s")
    Console().print(table)


def bundle_batch(bundle: qc.Bundle) -> int:
    """Images in one call of the first kernel."""
    return next(iter(bundle)).inputs[0].shape[0]


if __name__ == "__main__":
    raise SystemExit(main())
