"""A plan: everything that determines the code of one kernel for one target, found once and handed along."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from ..backends.interface import Hardware
from ..constants.facts import Facts
from ..records.record import Record
from ..schedules.rule import load_rule
from ..spec import Operator


@dataclass(frozen=True)
class Plan:
    """How an operator is compiled for a target, and why.

    Args:
        operator: the operator.
        constants: names of the tensors that are fixed.
        facts: what the values of the constants prove.
        hardware: the target.
        rule: name of the schedule rule.
        version: the rule's version.
        knobs: knob -> value, all of them.
        form: the arrangement of the tensors (`compute.form`).
        source: where the knobs come from: "records" (a user's file), "tuned" (schedules/<target>/tuned/), "defaults"
            (schedules/<target>/defaults.toml), "rule", or "tuning" for a candidate of a search.
        refused: (rule, reason) of the rules that were preferred and do not apply.
        record: the record that was followed; None for other sources.
        record_file: where the record stands.
        records_refused: why records did not decide, or did not decide better.
    """

    operator: Operator
    constants: frozenset[str]
    facts: Facts
    hardware: Hardware
    rule: str
    version: int
    knobs: Mapping[str, int]
    form: Any
    source: str
    refused: tuple[tuple[str, str], ...] = ()
    record: Record | None = None
    record_file: str = ""
    records_refused: tuple[str, ...] = ()


def plan_with(
    operator: Operator,
    hardware: Hardware,
    constants: Collection[str],
    facts: Facts,
    rule: str,
    knobs: Mapping[str, int],
    source: str,
    **reasons: Any,
) -> Plan:
    """The plan that follows from a rule and its knobs.

    Args:
        operator: the operator.
        hardware: the target.
        constants: names of the tensors that are fixed.
        facts: what the values of the constants prove.
        rule: name of the rule.
        knobs: all knobs of the rule.
        source: where they come from.
        reasons: the other fields of `Plan`.

    Raises:
        UnknownNameError: there is no such rule.
    """
    module = load_rule(rule)
    form = module.form(operator, hardware, knobs, facts)
    return Plan(operator, frozenset(constants), facts, hardware, rule, module.version, knobs, form, source, **reasons)
