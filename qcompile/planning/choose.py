"""Which rule and knobs schedule an operator: tuned records, then reviewed defaults, then the rule's own numbers."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ..backends import executor_of
from ..backends.interface import Hardware
from ..constants.facts import NOTHING, Facts
from ..errors import NotApplicable, TargetFileError, UnknownNameError
from ..records.file import RecordFile, parse_lines
from ..records.record import Record
from ..schedules.rule import check_knobs, load_rule
from ..spec import Operator
from ..system import resources
from .plan import Plan, plan_with


def find(
    operator: Operator,
    hardware: Hardware,
    constants: Collection[str] = frozenset(),
    records: Sequence[RecordFile] = (),
    facts: Facts = NOTHING,
) -> Plan:
    """The plan of an operator on a target.

    The best record that fits decides, of the user's files in their order, then of the package. Without one it is the
    first of the target's rules that applies, with the reviewed numbers of the target, else its own.

    Args:
        operator: the operator.
        hardware: the target.
        constants: names of the tensors that are fixed.
        records: the user's records.
        facts: what the values of the constants prove.

    Raises:
        NotApplicable: no rule of the target applies; the reason lists those of all rules.
    """
    refused = {name: reason for name in hardware.rules if (reason := _refusal(name, operator, hardware, facts))}
    applicable = [name for name in hardware.rules if name not in refused]
    if not applicable:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in refused.items())
        raise NotApplicable(f"no schedule rule of {hardware.name} applies to {operator.name} ({reasons})")
    # rules that these values of constants allow
    special = [name for name in applicable if _refusal(name, operator, hardware, NOTHING)]

    def plan(rule: str, knobs: Mapping[str, int], source: str, against: Sequence[str], **record: Any) -> Plan:
        preferred = tuple((name, refused[name]) for name in _before(rule, hardware) if name in refused)
        return plan_with(
            operator, hardware, constants, facts, rule, knobs, source,
            refused=preferred, records_refused=_first(against), **record,
        )  # fmt: skip

    against: list[str] = []
    for file in (*records, *tuned_records(hardware)):
        record, reasons_of_file = _best_fitting(file, operator, hardware, constants, applicable, special)
        against += reasons_of_file
        if record is not None:
            knobs = check_knobs(load_rule(record.rule), record.knobs, file.origin)
            return plan(record.rule, knobs, file.source, against, record=record, record_file=file.origin)
    source, knobs = default_knobs(applicable[0], hardware)
    return plan(applicable[0], knobs, source, against)


def _refusal(rule: str, operator: Operator, hardware: Hardware, facts: Facts) -> str | None:
    """Why a rule does not apply, or None."""
    try:
        load_rule(rule).check(operator, hardware, facts)
    except NotApplicable as error:
        return error.reason
    return None


def _before(rule: str, hardware: Hardware) -> tuple[str, ...]:
    """The rules that the target prefers to one."""
    return hardware.rules[: hardware.rules.index(rule)]


def default_knobs(rule: str, hardware: Hardware) -> tuple[str, dict[str, int]]:
    """("defaults" or "rule", all knobs) of a rule where no record decides."""
    defaults = resources.read_defaults(hardware.name).get(rule) if hardware.is_packaged else None
    knobs = check_knobs(load_rule(rule), defaults or {}, f"schedules/{hardware.name}/defaults.toml")
    return "rule" if defaults is None else "defaults", knobs


def tuned_records(hardware: Hardware) -> tuple[RecordFile, ...]:
    """The reviewed records for a target; none for a user's own, whatever its name."""
    return tuned(hardware.name) if hardware.is_packaged else ()


@functools.cache
def tuned(target: str) -> tuple[RecordFile, ...]:
    """The reviewed records of the package for one of its targets."""
    return tuple(
        RecordFile(name, "tuned", tuple(parse_lines(content, name))) for name, content in resources.read_tuned(target)
    )


def obstacle(record: Record, applicable: Collection[str]) -> str | None:
    """Why a record cannot be followed, or None.

    Args:
        record: a record of the right kernel, constants and target.
        applicable: names of the target's rules that apply to the operator.
    """
    try:
        load_rule(record.rule)
    except UnknownNameError:
        return f"there is no rule {record.rule}"
    if record.rule not in applicable:
        return f"its rule {record.rule} does not apply"
    rule = load_rule(record.rule)
    if record.rule_version != rule.version:
        return f"it is of {record.rule} version {record.rule_version}, the present one is {rule.version}"
    try:
        check_knobs(rule, record.knobs, "the record")
    except TargetFileError as error:
        return f"{error.problem.removeprefix('the record: ').rstrip('.')} ({error.given})"
    return None


def is_current(record: Record) -> bool:
    """Whether the rule of a record is there, in the same version, and has its knobs."""
    try:
        return obstacle(record, (record.rule,)) is None
    except UnknownNameError:
        return False


def _best_fitting(
    file: RecordFile,
    operator: Operator,
    hardware: Hardware,
    constants: Collection[str],
    applicable: Collection[str],
    special: Collection[str],
) -> tuple[Record | None, list[str]]:
    """The first record of a file that can be followed, or None; and the reasons against those before it.

    Records do not depend on the values of constants. So they say nothing against a preferred rule that these values
    allow, unless there are records of it too.
    """
    kernel, names = operator.name, tuple(sorted(constants))
    candidates = file.best_first((kernel, names, hardware.name), executor_of(hardware.kind).identity())
    measured = {record.rule for record in candidates}
    reasons: list[str] = []
    for record in candidates:
        reason = obstacle(record, applicable)
        if reason is None:
            better = [name for name in _before(record.rule, hardware) if name in special and name not in measured]
            if not better:
                return record, reasons
            reason = f"{better[0]} comes first, which these constants allow and of which it knows nothing"
        reasons.append(f"{file.origin}, record of {record.date}: {reason}")
    return None, reasons or _reasons_without_candidates(file, kernel, names, hardware)


def _reasons_without_candidates(file: RecordFile, kernel: str, names: tuple[str, ...], hardware: Hardware) -> list[str]:
    others = file.constants_of(kernel, hardware.name)
    if names in others:
        return [f"{file.origin}: all records of this kernel are of failures"]
    if others:
        known = "; ".join(", ".join(entry) or "none" for entry in others[:3])
        return [f"{file.origin}: its records of this kernel have other constants ({known})"]
    return [f"{file.origin}: no record of this kernel for {hardware.name}"] if file.source == "records" else []


#: number of reasons against records that are kept
_SHOWN_REASONS = 4


def _first(reasons: Sequence[str]) -> tuple[str, ...]:
    rest = len(reasons) - _SHOWN_REASONS
    return (*reasons[:_SHOWN_REASONS], *([f"and {rest} more"] if rest > 0 else []))
