"""What the machine code of kernels costs on CPUs that need not be here: an inner loop's cycles, a call's instructions.

    python benchmarks/static.py [--target x86_64-avx512vnni ...] [--json]

Cycles are what llvm-mca's model of the named CPU says of the loop that multiplies; its share is of what the multiplying
instruction alone would take in the same model. Instructions are counted while a whole call runs in emulation, packing
and requantization included, and divided by its multiply-accumulates. Neither is a measured speed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import operands
from rich.console import Console
from rich.table import Table
from shapes import parse_layer

import qcompile as qc
from qcompile.backends import targets
from qcompile.constants.facts import facts_of
from qcompile.errors import ToolchainError
from qcompile.pipeline.stages import stages
from qcompile.planning import find
from qcompile.spec import Operator


@dataclass(frozen=True)
class Model:
    """How a target is judged.

    Args:
        cpu: llvm-mca's name of a CPU.
        instruction: what multiplies in the assembly, with its prefix.
        lane_products: multiply-accumulates of one int32 lane of it.
        least_share: of the limit that the loop has to reach; None where none is set.
        most_instructions: for each multiply-accumulate; None where none is set.
    """

    cpu: str
    instruction: str
    lane_products: int
    least_share: float | None = None
    most_instructions: float | None = None


MODELS = {
    "x86_64-avx2": Model("haswell", "vpmaddwd", 2),
    "x86_64-avxvnni": Model("alderlake", "{vex} vpdpbusd", 4, 0.85, 0.060),
    "x86_64-avx512vnni": Model("icelake-server", "vpdpbusd", 4, 0.90, 0.030),
}
#: a product and a 3x3 convolution, in the format of shapes.py
LAYERS = ("product 256x256x256", "conv 28x28 64->64 3x3 pad=1")
TYPES, LAYOUT = "u8s8", "NHWC"
WIDTH = 80
_REGISTERS = {128: "xmm", 256: "ymm", 512: "zmm"}
#: versions of llvm-mca that know these CPUs, the preferred ones first
_CANDIDATES = (*(f"llvm-mca-{version}" for version in range(22, 15, -1)), "llvm-mca")
_TURNS = 500
_INDEPENDENT_SUMS = 12


@dataclass(frozen=True)
class Figures:
    """The figures of one kernel.

    Args:
        target, kernel: what was compiled.
        rule: its schedule rule.
        cpu: llvm-mca's CPU.
        llvm: its version.
        loop_instructions: of the inner loop.
        loop_products: multiply-accumulates of one turn of it.
        products_per_cycle: by llvm-mca.
        limit: the same of the multiplying instruction alone.
        emulated_cpu: on which the call ran.
        instructions: of the whole call.
        products: multiply-accumulates of the whole call.
    """

    target: str
    kernel: str
    rule: str
    cpu: str
    llvm: str
    loop_instructions: int
    loop_products: int
    products_per_cycle: float
    limit: float
    emulated_cpu: str
    instructions: int
    products: int

    @property
    def share(self) -> float:
        """Of the limit."""
        return self.products_per_cycle / self.limit

    @property
    def instructions_per_product(self) -> float:
        """Instructions for each multiply-accumulate."""
        return self.instructions / self.products

    @property
    def is_good(self) -> bool:
        """Whether both bounds of the target hold."""
        model = MODELS[self.target]
        return self.share >= (model.least_share or 0.0) and (
            model.most_instructions is None or self.instructions_per_product <= model.most_instructions
        )


def llvm_mca() -> str:
    """The command: the environment variable LLVM_MCA, else the latest version on the PATH.

    Raises:
        ToolchainError: there is none.
    """
    chosen = os.environ.get("LLVM_MCA")
    for name in [chosen] if chosen else _CANDIDATES:
        path = shutil.which(name)
        if path is not None:
            return path
    raise ToolchainError(
        "llvm-mca was not found.",
        given=f"LLVM_MCA={chosen}" if chosen else f"none of {', '.join(_CANDIDATES)} on the PATH",
        remedy="install LLVM 16 or later (Debian: apt-get install llvm-19), or set LLVM_MCA to the program",
    )


def llvm_version(command: str) -> str:
    """As llvm-mca tells it."""
    text = subprocess.run([command, "--version"], capture_output=True, text=True, check=True).stdout
    match = re.search(r"LLVM version (\S+)", text)
    return match[1] if match else "?"


def inner_loop(assembly: str, instruction: str) -> list[str]:
    """The lines of the shortest loop that holds the instruction, from its label to its jump.

    Raises:
        ValueError: there is no such loop.
    """
    lines = [" ".join(line.split()) for line in assembly.splitlines()]
    labels: dict[str, int] = {}
    loops = []
    for number, line in enumerate(lines):
        label = re.match(r"(\.L\w+):", line)
        if label:
            labels[label[1]] = number
        jump = re.match(r"j\w+ (\.L\w+)$", line)
        if jump and jump[1] in labels:
            loop = lines[labels[jump[1]] : number + 1]
            if any(other.startswith(f"{instruction} ") for other in loop):
                loops.append([other for other in loop if not other.startswith((".p2align", "#"))])
    if not loops:
        raise ValueError(f"no loop with {instruction}")
    return min(loops, key=len)


def cycles(command: str, cpu: str, code: Sequence[str]) -> float:
    """Cycles of one turn of a loop, by llvm-mca, without those by which the first turn starts.

    Raises:
        ToolchainError: it does not know the CPU, or refuses the code.
    """
    few, many = (_total_cycles(command, cpu, code, turns) for turns in (_TURNS, 2 * _TURNS))
    return (many - few) / _TURNS


def _total_cycles(command: str, cpu: str, code: Sequence[str], turns: int) -> int:
    done = subprocess.run(
        [command, "-mtriple=x86_64-linux-gnu", f"-mcpu={cpu}", f"-iterations={turns}"],
        input="\n".join(code) + "\n", capture_output=True, text=True, check=False,
    )  # fmt: skip
    match = re.search(r"Total Cycles:\s+(\d+)", done.stdout)
    if done.returncode != 0 or "not a recognized processor" in done.stderr or match is None:
        first = (done.stderr.strip() or "no figures").splitlines()[0]
        raise ToolchainError(
            f"llvm-mca could not judge the loop: {first}", given=f"{command}, CPU {cpu}",
            remedy="install LLVM 16 or later",
        )  # fmt: skip
    return int(match[1])


def limit(command: str, model: Model, vector_bits: int) -> float:
    """Multiply-accumulates of a cycle if nothing but the multiplying instruction ran, on independent sums."""
    register = _REGISTERS[vector_bits]
    code = [
        f"{model.instruction} %{register}14, %{register}15, %{register}{number}" for number in range(_INDEPENDENT_SUMS)
    ]
    products = _INDEPENDENT_SUMS * vector_bits // 32 * model.lane_products
    return products / cycles(command, model.cpu, code)


def judge(name: str, operator: Operator, target: str) -> Figures:
    """The figures of an operator of `operands`, whose parameters are constants."""
    command, model, found = llvm_mca(), MODELS[target], targets.load(target)
    values = operands.values(operator, TYPES)
    run_time = operator.tensors[0].name
    constants = {tensor: value for tensor, value in values.items() if tensor != run_time}
    facts = facts_of(operator, constants)
    text = stages(find(operator, found, constants.keys(), facts=facts), ["assembly"])["assembly"]
    loop = inner_loop(text, model.instruction)
    multiplying = sum(line.startswith(f"{model.instruction} ") for line in loop)
    loop_products = multiplying * found.facts.int32_lanes * model.lane_products
    kernel = qc.compile(operator, target, constants).emulated(always=True)
    kernel(**{run_time: values[run_time]})
    return Figures(
        target, name, kernel.variant.rule, model.cpu, llvm_version(command), len(loop) - 1, loop_products,
        loop_products / cycles(command, model.cpu, loop), limit(command, model, found.facts.vector_bits),
        kernel.variant.emulated_cpu, kernel.instructions, operator.operations,
    )  # fmt: skip


def judge_all(targets: Sequence[str]) -> list[Figures]:
    """The figures of all layers on these targets."""
    return [
        judge(layer.title, operands.operator(layer, TYPES, LAYOUT), target)
        for target in targets
        for layer in map(parse_layer, LAYERS)
    ]


def print_table(figures: Sequence[Figures]) -> None:
    """A line for each kernel."""
    console = Console(width=WIDTH, highlight=False)
    for target in dict.fromkeys(one.target for one in figures):
        own = [one for one in figures if one.target == target]
        console.print(f"{target}: {own[0].cpu} by LLVM {own[0].llvm}, emulated {own[0].emulated_cpu}", style="bold")
        table = Table(box=None, padding=(0, 2, 0, 0))
        table.add_column("kernel", no_wrap=True)
        for heading in ("loop", "MAC/cycle", "limit", "share", "instr/MAC", "bounds"):
            table.add_column(heading, justify="right", no_wrap=True)
        model = MODELS[target]
        bounds = "-" if model.least_share is None else f">= {model.least_share:.0%}, <= {model.most_instructions:.3f}"
        for one in own:
            table.add_row(
                one.kernel, str(one.loop_instructions), f"{one.products_per_cycle:.1f}", f"{one.limit:.1f}",
                f"{one.share:.0%}", f"{one.instructions_per_product:.4f}", bounds,
            )  # fmt: skip
        console.print(table)
        console.print()
    console.print("Cycles are a model's, and no measured speed.")


def main() -> None:
    """Prints the figures. The exit status is 1 if a bound does not hold."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--target", action="append", choices=list(MODELS), help="may be repeated (default: all)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args()
    try:
        figures = judge_all(options.target or list(MODELS))
    except qc.QCompileError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    if options.json:
        lines: list[dict[str, Any]] = [
            {**asdict(one), "share": one.share, "instructions_per_product": one.instructions_per_product,
             "is_good": one.is_good, "least_share": MODELS[one.target].least_share,
             "most_instructions": MODELS[one.target].most_instructions}
            for one in figures
        ]  # fmt: skip
        print(json.dumps({"kernels": lines}, indent=2))
    else:
        print_table(figures)
    sys.exit(0 if all(one.is_good for one in figures) else 1)


if __name__ == "__main__":
    main()
