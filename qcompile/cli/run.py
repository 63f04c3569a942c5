"""`qcompile run`."""

from __future__ import annotations

import io

import click

from . import output
from .arguments import bundle_argument
from .sources import only_kernel


@click.command(
    epilog=output.examples(
        "qcompile run model.qcb --kernel conv1 --input in.npz --output out.npz",
        "qcompile run one_kernel.qcb --input in.npz --output out.npz --threads 4",
    )
)
@bundle_argument()
@click.option("--kernel", "name", metavar="NAME", help="The kernel; may be left out if there is only one.")
@click.option("--input", "source", required=True, metavar="IN.npz", help="Arrays, named as the kernel's inputs.")
@click.option("--output", "path", required=True, metavar="OUT.npz", help="File for the kernel's outputs.")
@click.option(
    "--threads",
    type=click.IntRange(1, 256),
    metavar="N",
    help="Number of threads.  [default: QCOMPILE_NUM_THREADS, else the number of cores]",
)
def command(bundle: str, name: str | None, source: str, path: str, threads: int | None) -> None:
    """Run one kernel of a bundle on arrays from a file."""
    import numpy as np

    from ..frontends.toml import read_arrays
    from ..runtime.loader import load_bundle
    from ..system.files import check_writable, write_atomically

    check_writable(path, "The output", (bundle, source))
    kernel = only_kernel(load_bundle(bundle), name)
    arrays = read_arrays(source, f"The input {source}", kernel.inputs)
    result = kernel(num_threads=threads, **arrays)
    outputs = [result] if len(kernel.outputs) == 1 else list(result)
    content = io.BytesIO()
    named = {tensor.name: array for tensor, array in zip(kernel.outputs, outputs, strict=True)}
    np.savez(content, **named)
    write_atomically(path, content.getvalue(), "The output")
    output.print_line(f"{path}: {', '.join(map(str, kernel.outputs))}")
