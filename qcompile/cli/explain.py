"""`qcompile explain`."""

from __future__ import annotations

from typing import Any

import click

from ..backends import all_stages
from . import output
from .arguments import input_shape_option, json_option, kernels_option, records_option, target_option
from .explanations import Explanation, KernelChoice, explain, stage_text


@click.command(
    epilog=output.examples(
        "qcompile explain model.onnx --input-shape x=1,3,224,224",
        "qcompile explain layers.toml --target host --target mine.toml",
        "qcompile explain model.qcb --kernel conv1",
        "qcompile explain layers.toml --kernel conv1 --stage assembly",
        "qcompile explain model.onnx --records tuned.json",
    )
)
@click.argument("source", metavar="MODEL.onnx|OPS.toml|BUNDLE.qcb")
@target_option("Target to explain; repeatable.  [default: host; for a bundle, all of its own]")
@input_shape_option()
@kernels_option("Kernel to explain; repeatable.  [default: all]")
@records_option("File of records that `qcompile tune` wrote; repeatable, earlier ones decide first.")
@click.option("--stage", type=click.Choice(all_stages()), help="Print one kernel in this stage of lowering instead.")
@json_option()
def command(
    source: str,
    targets: tuple[str, ...],
    input_shapes: dict[str, tuple[int, ...]],
    kernels: tuple[str, ...],
    records: tuple[str, ...],
    stage: str | None,
    as_json: bool,
) -> None:
    """Say how kernels are scheduled and why, and which nodes are not compiled.

    For each kernel: the schedule rule, its version and knobs, where the knobs come from, and why the rules that
    are preferred were refused; the record that is followed, or why none is. For a model also every node that is left
    to the model's runtime, with the reason.
    """
    explanation = explain(source, input_shapes, targets, kernels, records)
    if stage is not None:
        text = stage_text(explanation, targets, stage, records)
        if as_json:
            choice = explanation.kernels[0].choices[0]
            output.print_json(
                {"kernel": explanation.kernels[0].name, "target": choice.target, "stage": stage, "text": text}
            )
        else:
            click.echo(output.printable(text, keep_lines=True))
    elif as_json:
        output.print_json(explanation.to_dictionary())
    else:
        _print(explanation)


def _print(explanation: Explanation) -> None:
    for number, kernel in enumerate(explanation.kernels):
        if number:
            output.print_line()
        output.print_line(kernel.name)
        fields = [("operator", kernel.operator.name)]
        fields += [("also named", ", ".join(kernel.aliases))] if kernel.aliases else []
        fields += [("constants", ", ".join(sorted(kernel.constants)) or "none")]
        output.print_fields(fields, indent=2)
        for choice in kernel.choices:
            output.print_line(f"  {choice.target}")
            output.print_fields(_choice_fields(choice), indent=4)
    if explanation.compiled is None:
        return
    skipped = explanation.skipped
    if explanation.kernels:
        output.print_line()
    total = explanation.compiled + len(skipped)
    output.print_line(f"{explanation.compiled} of {output.counted(total, 'node')} of the model compiled")
    if skipped:
        output.print_line()
        output.print_table(
            {"node left to the model's runtime": "left", "operator": "left", "reason": "left"},
            [(node.name, node.op_type, node.reason) for node in skipped],
        )


_SOURCES = {
    "rule": "the rule's own numbers",
    "defaults": "reviewed defaults of the target",
    "tuned": "reviewed records of the target",
    "records": "records",
}


def _choice_fields(choice: KernelChoice) -> list[tuple[str, str]]:
    if choice.obstacle is not None:
        return [("not compiled", choice.obstacle)]
    knobs: dict[str, Any] = dict(choice.knobs)
    fields = [
        ("rule", f"{choice.rule}, version {choice.version}"),
        ("knobs", ", ".join(f"{knob}={value}" for knob, value in knobs.items()) or "none"),
        ("from", f"{_SOURCES.get(choice.source, choice.source)}"),
    ]
    if choice.record is not None:
        record = choice.record
        fields += [
            ("record", f"{record['file']}, {record['date']}"),
            ("measured", f"{record['seconds'] * 1e6:.1f} µs with {output.counted(record['threads'], 'thread')} on "
                         f"{record['cpu']}"),
        ]  # fmt: skip
    fields += [("no record", reason) for reason in choice.records_refused]
    fields += [("refused", f"{rule}: {reason}") for rule, reason in choice.refused]
    if choice.missing is not None:
        emulated = f"; can be emulated ({choice.emulated_device})" if choice.emulated_device else ""
        fields.append(("runs here", f"no, lacks {', '.join(choice.missing)}{emulated}" if choice.missing else "yes"))
    return fields
