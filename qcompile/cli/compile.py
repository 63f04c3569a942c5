"""`qcompile compile`."""

from __future__ import annotations

import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from . import output
from .arguments import input_shape_option, json_option, records_option, target_option

if TYPE_CHECKING:
    from ..frontends.requests import Source
    from ..runtime.kernel import Kernel
    from ..runtime.loader import Bundle


@click.command(
    epilog=output.examples(
        "qcompile compile model.onnx -o model.qcb",
        "qcompile compile model.onnx --input-shape x=1,3,224,224 -o model.qcb",
        "qcompile compile layers.toml --target host --target mine.toml \\",
        "    -o layers.qcb",
    )
)
@click.argument("source", metavar="MODEL.onnx|OPS.toml")
@target_option("Target to compile for (see `qcompile targets`), or the path of a target file; repeatable.  "
               "[default: host]")  # fmt: skip
@click.option("-o", "--output", "path", required=True, metavar="OUT.qcb", help="The bundle.")
@input_shape_option()
@records_option("File of records that `qcompile tune` wrote; repeatable, earlier ones decide first.")
@click.option("--overflow", type=click.Choice(["warn", "error"]), default="warn", show_default=True,
              help="What to do where int32 sums can overflow for some inputs.")  # fmt: skip
@json_option()
def command(
    source: str,
    targets: tuple[str, ...],
    path: str,
    input_shapes: dict[str, tuple[int, ...]],
    records: tuple[str, ...],
    overflow: str,
    as_json: bool,
) -> None:
    """Compile a model, or a list of operators, into a bundle."""
    from ..frontends import requests
    from ..pipeline.compile import compile_requests
    from ..system.files import check_writable

    start = time.perf_counter()
    check_writable(path, "The output", (source,))  # before the long work rather than after it
    content = requests.read_file(source, input_shapes)
    with output.progress("compiling") as progress:
        bundle = compile_requests(
            content.requests, targets or ("host",), records=records, overflow=overflow, progress=progress
        )
    bundle.save(path)
    size, seconds = Path(path).stat().st_size, time.perf_counter() - start
    if as_json:
        output.print_json(_document(content, bundle, path, size, seconds))
    else:
        _print_table(bundle)
        output.print_line()
        if content.compiled is not None:
            _print_nodes(content, len(bundle), source, input_shapes)
        output.print_line(f"{path}: {output.byte_size(size)}, {output.counted(len(bundle), 'kernel')}, {seconds:.1f} s")


def _document(content: Source, bundle: Bundle, path: str, size: int, seconds: float) -> dict[str, Any]:
    nodes = None
    if content.compiled is not None:
        nodes = {"compiled": content.compiled, "left_to_runtime": len(content.skipped)}
    return {
        "bundle": path,
        "bytes": size,
        "seconds": round(seconds, 3),
        "targets": bundle.targets,
        "nodes": nodes,
        "kernels": [
            {
                "name": kernel.name,
                "aliases": list(kernel.aliases),
                "operator": kernel.operator.name,
                "constants_bytes": _constants_bytes(kernel),
                "rules": {variant.target: variant.rule for variant in kernel.variants},
                "sources": {variant.target: variant.knobs_source for variant in kernel.variants},
            }
            for kernel in bundle
        ],
    }


def _print_table(bundle: Bundle) -> None:
    rows = [
        (kernel.name, kernel.operator.name, variant.target, output.byte_size(_constants_bytes(kernel)), variant.rule)
        if number == 0
        else ("", "", variant.target, "", variant.rule)
        for kernel in bundle
        for number, variant in enumerate(kernel.variants)
    ]
    columns = {"kernel": "left", "operator": "left", "target": "left", "constants": "right", "rule": "left"}
    output.print_table(columns, rows)


def _print_nodes(content: Source, kernels: int, source: str, input_shapes: dict[str, tuple[int, ...]]) -> None:
    compiled, skipped = content.compiled or 0, len(content.skipped)
    nodes = output.counted(compiled + skipped, "node")
    output.print_line(f"{compiled} of {nodes} of the model compiled into {output.counted(kernels, 'kernel')}")
    if skipped:
        words = ["qcompile", "explain", source]
        for name, shape in input_shapes.items():
            words += ["--input-shape", f"{name}={','.join(map(str, shape))}"]
        output.print_line(f"why {skipped} not: {shlex.join(words)}")


def _constants_bytes(kernel: Kernel) -> int:
    return sum(constant.nbytes for constant in kernel.constants.values())
