"""Which rule and knobs schedule an operator: tuned records, then reviewed defaults, then the rule's own numbers."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from .. import resources
from ..errors import NotApplicable, TargetFileError, UnknownNameError
from ..facts import NOTHING, Facts
from ..hardware import Hardware
from ..spec import Operator
from .file import RecordFile, parse_lines
from .record import Record

if TYPE_CHECKING:
    from ..schedules.rule import Rule


@dataclass(frozen=True)
class Choice:
    """How an operator is scheduled, and why.

    Args:
        rule: name of the rule.
        version: its version.
        knobs: knob -> value.
        source: where the knobs come from: "records" (a user's file), "tuned" (schedules/<target>/tuned/), "defaults"
            (schedules/<target>/defaults.toml) or "rule".
        refused: (rule, reason) of the rules that were preferred and do not apply.
        record: the record that was followed, with `record_file`, where it stands; None for other sources.
        records_refused: why records did not decide, or decide better.
        facts: what the values of the constants prove.
    """

    rule: str
    version: int
    knobs: Mapping[str, int]
    source: str
    refused: tuple[tuple[str, str], ...] = ()
    record: Record | None = None
    record_file: str = ""
    records_refused: tuple[str, ...] = ()
    facts: Facts = NOTHING

    def form(self, operator: Operator, hardware: Hardware) -> Any:
        """The arrangement of the tensors."""
        return load_rule(self.rule).form(operator, hardware, self.knobs, self.facts)


def load_rule(name: str) -> Rule:
    """The module of a rule.

    Raises:
        UnknownNameError: there is none of that name.
    """
    try:
        if not name.isidentifier():
            raise ModuleNotFoundError(name)
        module = importlib.import_module(f"qcompile.schedules.{name}")
        if getattr(module, "name", None) != name or not hasattr(module, "knobs"):
            raise ModuleNotFoundError(name)
    except ModuleNotFoundError as error:
        raise UnknownNameError(
            "Unknown schedule rule.", given=repr(name), accepted=", ".join(resources.rule_names())
        ) from error
    return cast("Rule", module)


def find(
    operator: Operator,
    hardware: Hardware,
    constants: Collection[str] = frozenset(),
    records: Sequence[RecordFile] = (),
    facts: Facts = NOTHING,
) -> Choice:
    """The choice for an operator on a target.

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
    refused: list[tuple[str, str]] = []
    applicable: list[str] = []
    special: list[str] = []  # rules that these values of constants allow
    for name in hardware.rules:
        try:
            load_rule(name).check(operator, hardware, facts)
            applicable.append(name)
            if not _applies_always(name, operator, hardware):
                special.append(name)
        except NotApplicable as error:
            refused.append((name, error.reason))
    if not applicable:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in refused)
        raise NotApplicable(f"no schedule rule of {hardware.name} applies to {operator.name} ({reasons})")
    reasons_of_records: list[str] = []
    for file in (*records, *tuned(hardware.name)):
        record = _best_fitting(file, operator, hardware, constants, applicable, special, reasons_of_records)
        if record is not None:
            knobs = check_knobs(load_rule(record.rule), record.knobs, file.origin)
            preferred = _before(refused, record.rule, hardware)
            return Choice(record.rule, record.rule_version, knobs, file.source, preferred, record, file.origin,
                          _first(reasons_of_records), facts)  # fmt: skip
    name = applicable[0]
    source, knobs = default_knobs(name, hardware)
    return Choice(name, load_rule(name).version, knobs, source, _before(refused, name, hardware),
                  records_refused=_first(reasons_of_records), facts=facts)  # fmt: skip


def _applies_always(name: str, operator: Operator, hardware: Hardware) -> bool:
    """Whether a rule applies whatever the values of the constants are."""
    try:
        load_rule(name).check(operator, hardware, NOTHING)
    except NotApplicable:
        return False
    return True


def default_knobs(rule: str, hardware: Hardware) -> tuple[str, dict[str, int]]:
    """("defaults" or "rule", all knobs) of a rule where no record decides."""
    defaults = resources.read_defaults(hardware.name).get(rule)
    knobs = check_knobs(load_rule(rule), defaults or {}, f"schedules/{hardware.name}/defaults.toml")
    return "rule" if defaults is None else "defaults", knobs


@functools.cache
def tuned(target: str) -> tuple[RecordFile, ...]:
    """The reviewed records of the package for a target."""
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
    reasons: list[str],
) -> Record | None:
    """The first record of a file that can be followed; the reasons against the others are added to `reasons`.

    Records do not depend on the values of constants. So they say nothing against a preferred rule that these values
    allow, unless there are records of it too.
    """
    kernel, names = operator.name, tuple(sorted(constants))
    candidates = file.best_first((kernel, names, hardware.name))
    measured = {record.rule for record in candidates}
    for record in candidates:
        reason = obstacle(record, applicable)
        better = [
            name
            for name in special
            if name not in measured
            and record.rule in applicable
            and hardware.rules.index(name) < hardware.rules.index(record.rule)
        ]
        if reason is None and better:
            reason = f"{better[0]} comes first, which these constants allow and of which it knows nothing"
        if reason is None:
            return record
        reasons.append(f"{file.origin}, record of {record.date}: {reason}")
    if not candidates:
        others = file.constants_of(kernel, hardware.name)
        if names in others:
            reasons.append(f"{file.origin}: all records of this kernel are of failures")
        elif others:
            known = "; ".join(", ".join(entry) or "none" for entry in others[:3])
            reasons.append(f"{file.origin}: its records of this kernel have other constants ({known})")
        elif file.source == "records":
            reasons.append(f"{file.origin}: no record of this kernel for {hardware.name}")
    return None


#: so many reasons against records are kept
_SHOWN_REASONS = 4


def _first(reasons: Sequence[str]) -> tuple[str, ...]:
    rest = len(reasons) - _SHOWN_REASONS
    return (*reasons[:_SHOWN_REASONS], *([f"and {rest} more"] if rest > 0 else []))


def _before(refused: Sequence[tuple[str, str]], rule: str, hardware: Hardware) -> tuple[tuple[str, str], ...]:
    """The refusals of the rules that are preferred to the chosen one."""
    preferred = hardware.rules[: hardware.rules.index(rule)]
    return tuple((name, reason) for name, reason in refused if name in preferred)


def check_knobs(rule: Rule, given: Mapping[str, Any], origin: str) -> dict[str, int]:
    """All knobs of a rule: the given ones, checked, and the rule's own numbers for the others.

    Raises:
        TargetFileError: an unknown knob or a value outside its range.
    """
    for knob, value in given.items():
        if knob not in rule.knobs:
            accepted = ", ".join(rule.knobs)
            raise TargetFileError(f"{origin}: {rule.name} has no such knob.", given=knob, accepted=accepted)
        _, low, high = rule.knobs[knob]
        if type(value) is not int or not low <= value <= high:
            raise TargetFileError(f"{origin}: {rule.name}.{knob} is out of range.", given=repr(value),
                                  accepted=f"{low} to {high}")  # fmt: skip
    return {knob: given.get(knob, default) for knob, (default, _, _) in rule.knobs.items()}
