"""What `qcompile explain` prints, collected from models, files of operators and bundles."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from ..errors import InvalidTensorError, NotApplicable, QCompileWarning, UnknownNameError
from .sources import is_bundle, one_of

if TYPE_CHECKING:
    from ..backends.interface import Hardware
    from ..bundle.manifest import KernelEntry, Manifest
    from ..constants.facts import Facts
    from ..frontends.onnx import SkippedNode
    from ..frontends.requests import Request
    from ..records import RecordFile
    from ..spec import Operator


@dataclass(frozen=True)
class KernelChoice:
    """How a kernel is scheduled on one target.

    Args:
        target: the target's name.
        obstacle: why the kernel is not compiled for it; None where it is, and then the other fields hold.
        rule, version, knobs, source, refused: as in `planning.Plan`.
        missing: of a bundle's variant, what this machine lacks to run it.
        emulated_device: of a bundle's variant, the device on which it can be emulated; "" where it names none.
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
    emulated_device: str = ""

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
        compiled: number of nodes of a model that the kernels replace; None for other files.
        skipped: the other nodes of the model.
    """

    origin: str
    kernels: list[ExplainedKernel]
    compiled: int | None = None
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
        if self.compiled is not None:
            nodes = {"compiled": self.compiled, "left_to_runtime": [asdict(node) for node in self.skipped]}
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
        stage: a stage of the target's backend.
        records: as given to `explain`.

    Raises:
        UnknownNameError: there are several kernels or targets.
    """
    from ..backends.targets import resolve
    from ..pipeline.stages import stages
    from ..planning import find
    from ..records import load_each

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
    target = resolve(targets or (choice.target,))[0]
    plan = find(kernel.operator, target, frozenset(kernel.constants), load_each(records), kernel.facts)
    if choice.missing is not None and (plan.rule, plan.version, dict(plan.knobs)) != choice.move:
        warnings.warn(
            f"the bundle's {kernel.name} was scheduled in another way than this qcompile does; this is the new way",
            QCompileWarning,
            stacklevel=2,
        )
    return stages(plan, [stage])[stage]


def _source(
    path: str, input_shapes: Mapping[str, Sequence[int]], targets: Sequence[str], records: Sequence[str]
) -> Explanation:
    from ..backends.targets import resolve
    from ..frontends import requests
    from ..records import load_each

    resolved = resolve(targets or ("host",))
    files = load_each(records)
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
    return Explanation(path, kernels, source.compiled, source.skipped)


def _facts(request: Request) -> Facts:
    from ..constants.facts import facts_of
    from ..spec.values import canonical_values

    return facts_of(request.operator, canonical_values(request.operator, request.constants))


def _choice(
    operator: Operator, constants: Collection[str], facts: Facts, target: Hardware, files: Sequence[RecordFile]
) -> KernelChoice:
    from ..planning import find

    try:
        found = find(operator, target, frozenset(constants), files, facts)
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
    from ..backends.targets import resolve
    from ..constants.facts import facts_of
    from ..runtime.loader import load_bundle

    if input_shapes:
        raise InvalidTensorError("input shapes are for ONNX models; a bundle's kernels have fixed shapes.")
    bundle = load_bundle(path)
    manifest = bundle.manifest
    own = [library.target for library in manifest.libraries]
    wanted = {target if target in own else resolve(target)[0].name for target in targets}
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
    from ..runtime.places import emulated_device, missing

    choices = []
    for variant in kernel.variants:
        library = manifest.libraries[variant.library]
        if wanted and library.target not in wanted:
            continue
        choices.append(
            KernelChoice(
                library.target, None, variant.rule, variant.rule_version, variant.knobs, variant.knobs_source,
                variant.refused, missing(library), emulated_device=emulated_device(library),
            )
        )  # fmt: skip
    return choices
