"""What `qcompile explain` prints, collected from models, files of operators and bundles."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from ..errors import InvalidTensorError, NotApplicable, QCompileWarning, UnknownNameError
from .sources import is_bundle, one_of

if TYPE_CHECKING:
    from ..facts import Facts
    from ..frontends.onnx import SkippedNode
    from ..hardware import Hardware
    from ..records import RecordFile
    from ..requests import Request
    from ..runtime.manifest import KernelEntry, Manifest
    from ..spec import Operator

#: `lowering.STAGES`, which cannot be imported here: lowering needs TVM.
STAGES = ("computed", "scheduled", "lowered", "llvm", "assembly")


@dataclass(frozen=True)
class KernelChoice:
    """How a kernel is scheduled on one target.

    Args:
        target: the target's name.
        obstacle: why the kernel is not compiled for it; None where it is, and then the other fields hold.
        rule, version, knobs, source, refused: as in `records.Choice`.
        missing: of a bundle's variant, what this machine lacks to run it.
        emulated_cpu: of a bundle's variant, the CPU on which it can be emulated; "" where it names none.
        record: file, date, cpu, threads and seconds of the record that was followed; None where none was.
        records_refused: why records did not decide.
    """

    target: str
    obstacle: str | None = None
    rule: str = ""
    version: int = 0
    knobs: Mapping[str, int] = field(default_factory=dict)
    source: str = ""
    refused: tuple[tuple[str, str], ...] = ()
    missing: list[str] | None = None
    record: Mapping[str, Any] | None = None
    records_refused: tuple[str, ...] = ()
    emulated_cpu: str = ""

    @property
    def move(self) -> tuple[str, int, dict[str, int]]:
        """What determines the code."""
        return self.rule, self.version, dict(self.knobs)


@dataclass(frozen=True)
class ExplainedKernel:
    """One kernel: what it computes, and a choice for each target."""

    name: str
    aliases: tuple[str, ...]
    operator: Operator
    constants: Collection[str]
    facts: Facts
    choices: list[KernelChoice]


@dataclass(frozen=True)
class Explanation:
    """All that is known of a file.

    Args:
        origin: the file.
        kernels: the kernels, in order.
        taken_over: number of nodes of a model that the kernels replace; None for other files.
        skipped: the other nodes of the model.
    """

    origin: str
    kernels: list[ExplainedKernel]
    taken_over: int | None = None
    skipped: tuple[SkippedNode, ...] = ()

    def to_dictionary(self) -> dict[str, Any]:
        """Plain JSON values."""
        kernels = [
            {
                "name": kernel.name,
                "aliases": list(kernel.aliases),
                "operator": kernel.operator.name,
                "constants": sorted(kernel.constants),
                "choices": [
                    {**asdict(choice), "refused": [{"rule": rule, "reason": why} for rule, why in choice.refused]}
                    for choice in kernel.choices
                ],
            }
            for kernel in self.kernels
        ]
        nodes = None
        if self.taken_over is not None:
            nodes = {"taken_over": self.taken_over, "not_taken_over": [asdict(node) for node in self.skipped]}
        return {"file": self.origin, "kernels": kernels, "nodes": nodes}


def explain(
    path: str,
    input_shapes: Mapping[str, Sequence[int]],
    targets: Sequence[str],
    kernels: Sequence[str],
    records: Sequence[str] = (),
) -> Explanation:
    """Explains a model, a file of operators or a bundle.

    Args:
        path: the file.
        input_shapes: of a model.
        targets: names; without one the host, and for a bundle its own targets.
        kernels: names, also further ones; without one all kernels.
        records: files of records.
    """
    if is_bundle(path):
        if records:
            raise InvalidTensorError("--records is for what is still to be compiled; a bundle is compiled.")
        explained = _bundle(path, input_shapes, targets)
    else:
        explained = _source(path, input_shapes, targets, records)
    if not kernels:
        return explained
    names = {name for kernel in explained.kernels for name in (kernel.name, *kernel.aliases)}
    for name in kernels:
        if name not in names:
            known = [kernel.name for kernel in explained.kernels]
            raise UnknownNameError(
                f"{path} has no kernel of that name.",
                given=repr(name),
                accepted=", ".join(known[:20]) + (", ..." if len(known) > 20 else ""),
            )
    chosen = [kernel for kernel in explained.kernels if {kernel.name, *kernel.aliases} & set(kernels)]
    return Explanation(path, chosen)


def stage_text(explanation: Explanation, targets: Sequence[str], stage: str, records: Sequence[str] = ()) -> str:
    """The only kernel of an explanation, for its only target, in a stage of lowering.

    Args:
        explanation: with one kernel.
        targets: as given to `explain`.
        stage: one of `STAGES`.
        records: as given to `explain`.

    Raises:
        UnknownNameError: there are several kernels or targets.
    """
    from .. import pipeline

    one_of([kernel.name for kernel in explanation.kernels], explanation.origin)
    kernel = explanation.kernels[0]
    if len(kernel.choices) != 1:
        raise UnknownNameError(
            "A stage can be shown for one target.",
            given=", ".join(choice.target for choice in kernel.choices),
            remedy="choose one with --target",
        )
    choice = kernel.choices[0]
    if choice.obstacle is not None:
        raise NotApplicable(choice.obstacle)
    target = pipeline.resolve_targets(targets or (choice.target,))[0]
    if (
        choice.missing is not None
        and _choice(kernel.operator, kernel.constants, kernel.facts, target, []).move != choice.move
    ):
        warnings.warn(
            f"the bundle's {kernel.name} was scheduled in another way than this qcompile does; this is the new way",
            QCompileWarning,
            stacklevel=2,
        )
    known = frozenset(kernel.constants)
    return pipeline.stages(kernel.operator, known, target, [stage], records, kernel.facts)[stage]


def _source(
    path: str, input_shapes: Mapping[str, Sequence[int]], targets: Sequence[str], records: Sequence[str]
) -> Explanation:
    from .. import pipeline, requests

    resolved = pipeline.resolve_targets(targets or ("host",))
    files = pipeline.load_records(records)
    source = requests.read_file(path, input_shapes)
    kernels = [
        ExplainedKernel(
            request.name,
            request.aliases,
            request.operator,
            tuple(request.constants),
            facts,
            [_choice(request.operator, request.constants, facts, target, files) for target in resolved],
        )
        for request, facts in ((request, _facts(request)) for request in source.requests)
    ]
    return Explanation(path, kernels, source.taken_over, source.skipped)


def _facts(request: Request) -> Facts:
    from ..facts import facts_of
    from ..spec.values import canonical_values

    return facts_of(request.operator, canonical_values(request.operator, request.constants))


def _choice(
    operator: Operator, constants: Collection[str], facts: Facts, target: Hardware, files: Sequence[RecordFile]
) -> KernelChoice:
    from .. import records

    try:
        found = records.find(operator, target, frozenset(constants), files, facts)
    except NotApplicable as error:
        return KernelChoice(target.name, error.reason)
    record = None
    if found.record is not None:
        values = {name: getattr(found.record, name) for name in ("date", "cpu", "threads", "seconds")}
        record = {"file": found.record_file, **values}
    return KernelChoice(
        target.name, None, found.rule, found.version, found.knobs, found.source, found.refused, None, record,
        found.records_refused,
    )  # fmt: skip


def _bundle(path: str, input_shapes: Mapping[str, Sequence[int]], targets: Sequence[str]) -> Explanation:
    from .. import pipeline
    from ..facts import facts_of
    from ..runtime.loader import load_bundle

    if input_shapes:
        raise InvalidTensorError("input shapes are for ONNX models; a bundle has its shapes.")
    bundle = load_bundle(path)
    manifest = bundle.manifest
    own = [library.target for library in manifest.libraries]
    wanted = {target if target in own else pipeline.resolve_targets(target)[0].name for target in targets}
    for target in wanted:
        if target not in own:
            raise UnknownNameError(
                f"The bundle {path} was not compiled for that target.", given=repr(target), accepted=", ".join(own)
            )
    kernels = [
        ExplainedKernel(
            kernel.name,
            kernel.aliases,
            kernel.operator,
            tuple(kernel.constants),
            facts_of(kernel.operator, bundle[kernel.name].constants),
            _variants(manifest, kernel, wanted),
        )
        for kernel in manifest.kernels
    ]
    return Explanation(path, kernels)


def _variants(manifest: Manifest, kernel: KernelEntry, wanted: Collection[str]) -> list[KernelChoice]:
    from ..runtime import cpu_features

    choices = []
    for variant in kernel.variants:
        library = manifest.libraries[variant.library]
        if wanted and library.target not in wanted:
            continue
        missing = cpu_features.missing(library.architecture, library.required_features)
        choices.append(
            KernelChoice(
                library.target, None, variant.rule, variant.rule_version, variant.knobs, variant.knobs_source,
                variant.refused, missing, emulated_cpu=library.emulated_cpu,
            )
        )  # fmt: skip
    return choices
