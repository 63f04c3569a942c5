"""The speed of kernels on this machine, beside ONNX Runtime's, TensorFlow's and the memory's, in one run.

    python benchmarks/run.py [--suite layers|quantize ...] [--threads 1 --threads 2] [--json] [--compare OLD.json]

Every line is the median of calls that take turns with the peer's. "exact" says whether the peer's output equals the
reference, which ours does by `qcompile verify`. Nothing else should run on the machine meanwhile.
"""

from __future__ import annotations

import argparse
import json
import platform
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from interleaved import medians
from peers import NODES, onnxruntime_call, tensorflow_call
from rich.console import Console
from rich.table import Table

import qcompile as qc
from qcompile.reference import evaluate
from qcompile.reference.random_values import random_values
from qcompile.spec import Operator


@dataclass(frozen=True)
class Line:
    """One operator with a number of threads.

    Args:
        suite, name: what was measured; `name` is the kernel's.
        threads: number of threads.
        microseconds: of one call.
        rate: 10^9 multiply-accumulates or elements a second.
        peer: the peer's time / ours: ONNX Runtime's, or TensorFlow's for QuantizeV2; None without a peer.
        peer_exact: whether ONNX Runtime's output equals the reference.
        bandwidth: bytes read and written a second, as a share of what a copy of large arrays reaches; for elementwise
            operators. Above 1 where the tensors fit the caches.
    """

    suite: str
    name: str
    threads: int
    microseconds: float
    rate: float
    peer: float | None
    peer_exact: bool | None
    bandwidth: float | None


def layers() -> Iterator[tuple[str, Operator]]:
    """Convolutions and matrix products of well-known networks, uint8 by int8 with scales per channel."""

    def convolution(channels: int, size: int, outputs: int, taps: int, **fields: Any) -> Operator:
        padding = (taps // 2,) * 2
        return qc.QuantizedLinearConvolution(
            qc.Tensor((1, channels, size, size), "uint8"),
            qc.Tensor((outputs, channels // fields.get("group_count", 1), taps, taps), "int8"),
            bias=True, filter_scale="per_channel", filter_zero_point=None, start_padding=padding, end_padding=padding,
            **fields,
        )  # fmt: skip

    def product(rows: int, depth: int, columns: int) -> Operator:
        return qc.QuantizedLinearMatrixMultiply(
            qc.Tensor((rows, depth), "uint8"), qc.Tensor((depth, columns), "int8"), b_scale="per_column",
            b_zero_point=None,
        )  # fmt: skip

    yield "3x3 56x56 64->64", convolution(64, 56, 64, 3)
    yield "3x3 14x14 256->256", convolution(256, 14, 256, 3)
    yield "1x1 28x28 256->512", convolution(256, 28, 512, 1)
    yield "7x7 stride 2 224x224 3->64", convolution(3, 224, 64, 7, strides=(2, 2))
    yield "depthwise 3x3 112x112 32", convolution(32, 112, 32, 3, group_count=32)
    yield "product 128x256x256", product(128, 256, 256)
    yield "product 128x768x3072", product(128, 768, 3072)
    yield "product 1x4096x4096", product(1, 4096, 4096)


def quantize() -> Iterator[tuple[str, Operator]]:
    """The operators on single elements, a million of them."""
    million = (1000, 1000)
    yield "QuantizeLinear uint8", qc.QuantizeLinear(qc.Tensor(million, "float32"))
    yield (
        "QuantizeLinear int8 per axis",
        qc.QuantizeLinear(qc.Tensor(million, "float32"), "int8", "per_axis", "per_axis"),
    )
    yield "DequantizeLinear uint8", qc.DequantizeLinear(qc.Tensor(million, "uint8"))
    yield "DequantizeLinear int8 per axis", qc.DequantizeLinear(qc.Tensor(million, "int8"), "per_axis", "per_axis")
    yield "Requantize int8", qc.Requantize(qc.Tensor(million, "int32"))
    yield "Requantize int8 per axis", qc.Requantize(qc.Tensor(million, "int32"), input_scale="per_axis")
    yield "DynamicQuantizeLinear", qc.DynamicQuantizeLinear(qc.Tensor(million, "float32"))
    for mode in ("SCALED", "MIN_COMBINED", "MIN_FIRST"):
        yield f"QuantizeV2 {mode} int8", qc.QuantizeV2(qc.Tensor(million, "float32"), "int8", mode)


SUITES = {"layers": layers, "quantize": quantize}


@cache
def memory_bandwidth() -> float:
    """Bytes a second, read and written, of one thread that copies 128 MiB."""
    source, target = np.ones(1 << 27, np.uint8), np.ones(1 << 27, np.uint8)
    seconds = medians({"copy": lambda: np.copyto(target, source)}, rounds=5)["copy"]
    return 2 * float(source.nbytes) / seconds


def measure(suite: str, title: str, operator: Operator, threads: int, rounds: int) -> Line:
    """Times one operator against its peer and the memory."""
    values = random_values(operator, np.random.default_rng(0))
    constants = {tensor.name: values[tensor.name] for tensor in operator.tensors if tensor.role != "data"}
    kernel = qc.compile(operator, "host", constants)
    inputs = {tensor.name: values[tensor.name] for tensor in kernel.inputs}
    outputs = [np.empty(tensor.shape, tensor.dtype) for tensor in kernel.outputs]
    calls: dict[str, Any] = {"ours": lambda: kernel(out=outputs, num_threads=threads, **inputs)}
    peer_output = None
    if type(operator) in NODES:
        calls["peer"], peer_output = onnxruntime_call(operator, values, threads)
    elif isinstance(operator, qc.QuantizeV2):
        tensorflow = tensorflow_call(operator, values, threads)
        calls |= {"peer": tensorflow} if tensorflow is not None else {}
    seconds = medians(calls, rounds)
    moved = sum(array.nbytes for array in (*inputs.values(), *outputs))
    exact = None
    if peer_output is not None:
        exact = bool(np.array_equal(peer_output, evaluate(operator, values)["output"]))
    return Line(
        suite,
        title,
        threads,
        seconds["ours"] * 1e6,
        operator.operations / seconds["ours"] / 1e9,
        seconds["peer"] / seconds["ours"] if "peer" in seconds else None,
        exact,
        moved / seconds["ours"] / memory_bandwidth() if suite == "quantize" else None,
    )


def main() -> None:
    """Prints the table or the JSON document."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--suite", action="append", choices=list(SUITES), help="default: all")
    parser.add_argument("--threads", action="append", type=int, help="default: 1")
    parser.add_argument("--rounds", type=int, default=15, help="turns of each measurement (default: 15)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--compare", type=Path, metavar="OLD.json", help="add the ratio to an earlier --json")
    options = parser.parse_args()
    old = {}
    if options.compare:
        for row in json.loads(options.compare.read_text())["lines"]:
            old[row["suite"], row["name"], row["threads"]] = row["microseconds"]
    lines = [
        measure(suite, title, operator, threads, options.rounds)
        for suite in options.suite or SUITES
        for title, operator in SUITES[suite]()
        for threads in options.threads or [1]
    ]
    if options.json:
        rows = [{**asdict(line), "speed_up": _speed_up(line, old)} for line in lines]
        print(json.dumps({"cpu": platform.processor() or platform.machine(), "lines": rows}, indent=1))
        return
    print(f"a copy of large arrays moves {memory_bandwidth() / 1e9:.1f} GB/s")
    table = Table()
    headings = ("operator", "threads", "µs", "G/s", "x peer", "peer is", "x copy")
    for position, heading in enumerate((*headings, *(["x before"] if old else []))):
        table.add_column(heading, justify="right" if position else "left")
    for line in lines:
        table.add_row(*_cells(line), *([_number(_speed_up(line, old))] if old else []))
    Console().print(table)


def _speed_up(line: Line, old: dict[Any, float]) -> float | None:
    before = old.get((line.suite, line.name, line.threads))
    return before / line.microseconds if before else None


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _cells(line: Line) -> tuple[str, ...]:
    verdict = {None: "-", True: "exact", False: "wrong"}[line.peer_exact]
    return (
        line.name, str(line.threads), f"{line.microseconds:.0f}", f"{line.rate:.1f}", _number(line.peer), verdict,
        _number(line.bandwidth),
    )  # fmt: skip


if __name__ == "__main__":
    main()
