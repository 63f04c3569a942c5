"""`qcompile targets`."""

from __future__ import annotations

from typing import Any

import click

from . import output
from .arguments import json_option


@click.command(epilog=output.examples("qcompile targets", "qcompile targets --json"))
@json_option()
def command(as_json: bool) -> None:
    """List the targets, and what this machine can do with them."""
    from .. import hardware, pipeline
    from ..errors import UnknownNameError
    from ..runtime import cpu_features

    try:
        host = pipeline.host().name
    except UnknownNameError:
        host = None
    obstacles = _obstacles()
    rows: list[dict[str, Any]] = []
    for entry in hardware.load_all():
        missing = cpu_features.missing(entry.architecture, entry.required_features)
        rows.append(
            {
                "name": entry.name,
                "description": entry.description,
                "architecture": entry.architecture,
                "required_features": list(entry.required_features),
                "is_host": entry.name == host,
                "runs_here": not missing,
                "missing": missing,
                "emulated_cpu": entry.emulated_cpu,
                "compiles_here": not obstacles,
                "obstacles": obstacles,
            }
        )
    if as_json:
        output.print_json({"architecture": cpu_features.architecture(), "host": host, "targets": rows})
    else:
        _print(rows, obstacles)


def _obstacles() -> list[str]:
    """Why nothing can be compiled on this machine; empty where it can."""
    from .. import toolchain, tvm_versions
    from ..errors import MissingDependencyError, ToolchainError

    obstacles = []
    for check in (tvm_versions.check, toolchain.c_compiler):
        try:
            check()
        except (MissingDependencyError, ToolchainError) as error:
            obstacles.append(str(error))
    return obstacles


def _lacks(row: dict[str, Any]) -> str:
    emulated = f" (emulated: {row['emulated_cpu']})" if row["emulated_cpu"] else ""
    return f"no, lacks {', '.join(row['missing'])}{emulated}"


def _print(rows: list[dict[str, Any]], obstacles: list[str]) -> None:
    output.print_table(
        {"target": "whole", "description": "left", "needs": "left", "runs here": "left", "compiles here": "left"},
        [
            (
                row["name"] + (" (host)" if row["is_host"] else ""),
                row["description"],
                " ".join([row["architecture"], *row["required_features"]]),
                "yes" if row["runs_here"] else _lacks(row),
                "yes" if row["compiles_here"] else "no",
            )
            for row in rows
        ],
    )  # fmt: skip
    for obstacle in obstacles:
        output.print_line()
        for line in obstacle.splitlines():
            output.print_line(line)
