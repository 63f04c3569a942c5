"""The code of many kernels: generated in threads, each code once, kept in the cache of compiled kernels."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from .. import catalogue
from ..backends import BACKENDS, compiler_of
from ..backends.interface import Code, TableArgument, TableKernel
from ..compute.arguments import CodeArgument
from ..constants.packing import fold
from ..errors import LoweringError, QCompileError
from ..planning import Plan
from ..schedules.rule import load_rule
from ..system import cache, resources, tvm_versions
from ..system.hashing import digest

if TYPE_CHECKING:
    from ..compute.computation import Computation

Made = TypeVar("Made")
#: files and folders of the package, relative to it, that determine code whatever the backend
_SOURCES = (
    "spec", "compute", "intrinsics", "schedules", "catalogue.py", "pipeline/codes.py",
    "backends/interface.py",
)  # fmt: skip


@dataclass(frozen=True)
class Job:
    """A kernel to generate code for.

    Args:
        name: of the kernel.
        plan: how.
        requantize: the arithmetic of the last stage.
    """

    name: str
    plan: Plan
    requantize: str

    @cached_property
    def key(self) -> str:
        """What determines the code; the values of the constants do not."""
        plan = self.plan
        return digest(
            "kernel", plan.operator.name, sorted(plan.constants), asdict(plan.hardware), plan.rule, plan.version,
            sorted(plan.knobs.items()), plan.form, self.requantize, tvm_versions.installed("apache-tvm"),
            source_digest(plan.hardware.kind),
        )  # fmt: skip


def source_digest(kind: str) -> str:
    """Changes with every source that determines the code of a backend, so that no entry outlives what made it."""
    own = compiler_of(kind).source_paths() if kind in BACKENDS else ()
    return resources.source_digest((*_SOURCES, *own))


def generate_all(jobs: Sequence[Job], progress: Callable[[int, int, str], None] | None) -> dict[str, Code]:
    """Key -> code, of all jobs. TVM leaves the interpreter free, so that threads share the work.

    Args:
        jobs: those with equal keys share their code.
        progress: called with (jobs done, jobs in all, name of the next one) before each job and at the end.
    """
    codes: dict[str, Code] = {}
    with ThreadPoolExecutor(max_workers=len(os.sched_getaffinity(0))) as executor:
        futures: dict[str, Future[Code]] = {}
        for job in jobs:
            if job.key not in futures:
                futures[job.key] = executor.submit(_cached, job)
        try:
            for number, job in enumerate(jobs):
                if progress is not None:
                    progress(number, len(jobs), job.name)
                codes[job.key] = futures[job.key].result()
        except BaseException:
            executor.shutdown(cancel_futures=True)
            raise
    if progress is not None:
        progress(len(jobs), len(jobs), "")
    return codes


def table_kernel(job: Job, constants: Mapping[str, Any], code: Code) -> TableKernel:
    """A kernel's row in its library, its constants folded.

    Args:
        job: the kernel.
        constants: canonical values of the tensors that are fixed.
        code: of the kernel.
    """
    plan, operator = job.plan, job.plan.operator
    tensors = {tensor.name: tensor for tensor in (*operator.tensors, *operator.outputs)}
    arguments = [
        TableArgument(
            argument.name,
            argument.dtype,
            argument.shape if argument.kind == "constant" else tensors[argument.name].shape,
            argument.shape,
            argument.kind,
            optional=argument.kind == "input" and tensors[argument.name].optional,
            value=fold(argument.name, operator, plan.form, constants) if argument.kind == "constant" else None,
        )
        for argument in code.arguments
    ]
    return TableKernel(job.name, code.symbol, tuple(arguments), operator, constants)


def generate(plan: Plan, symbol: str, wanted: Sequence[str] = ()) -> Code:
    """The code of a plan; the cache is not used.

    Args:
        plan: the plan.
        symbol: an identifier.
        wanted: stages of the backend whose texts are wanted.

    Raises:
        LoweringError: TVM refuses the computation, a move of the rule, or the scheduled function.
    """
    computation, module = scheduled(plan)
    code = compiler_of(plan.hardware.kind).generate(module, symbol, plan.hardware, wanted)
    return replace(code, arguments=computation.arguments)


def computed(plan: Plan) -> Computation:
    """The computation of a plan, as tensor expressions say it.

    Raises:
        LoweringError: TVM refuses it.
    """
    tvm_versions.check()
    compute: Callable[..., Computation] = catalogue.compute_function(plan.operator)
    return _explained(plan, lambda: compute(plan.operator, plan.constants, plan.form))


def scheduled(plan: Plan) -> tuple[Computation, Any]:
    """The computation of a plan, prepared for its backend, and its scheduled IRModule.

    Raises:
        LoweringError: TVM refuses the computation or a move of the rule.
    """
    described = computed(plan)

    def schedule() -> tuple[Computation, Any]:
        function = compiler_of(plan.hardware.kind).prepare(described.function, plan.hardware)
        prepared = replace(described, function=function)
        rule = load_rule(plan.rule)
        return prepared, rule.schedule(plan.operator, plan.hardware, prepared, plan.form, plan.knobs)

    return _explained(plan, schedule)


def _explained(plan: Plan, make: Callable[[], Made]) -> Made:
    try:
        return make()
    except QCompileError:
        raise
    except Exception as error:  # TVM raises many types
        raise LoweringError(
            f"{plan.rule} could not schedule {plan.operator.name} on {plan.hardware.name}: {error}"
        ) from error


def _cached(job: Job) -> Code:
    """Code from the cache, or newly generated."""
    made: list[Code] = []

    def make() -> bytes:
        made.append(generate(job.plan, f"qc_{job.key[:24]}"))
        return _pack(made[0])

    stored = cache.cached(job.key, make)
    return made[0] if made else _unpack(stored)


def _pack(code: Code) -> bytes:
    header = {
        "symbol": code.symbol,
        "workspace_bytes": code.workspace_bytes,
        "arguments": [asdict(argument) for argument in code.arguments],
    }
    return json.dumps(header).encode() + b"\n" + code.content


def _unpack(stored: bytes) -> Code:
    text, _, content = stored.partition(b"\n")
    header = json.loads(text)
    arguments = tuple(
        CodeArgument(**{**argument, "shape": tuple(argument["shape"])}) for argument in header["arguments"]
    )
    return Code(header["symbol"], content, header["workspace_bytes"], arguments)
