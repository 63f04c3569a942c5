"""The worker that builds candidates: bundles of one kernel, several at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

from ..backends import targets
from ..backends.interface import Hardware
from ..constants.facts import NOTHING, Facts
from ..errors import LoweringError, QCompileError
from ..frontends.requests import Request
from ..pipeline.compile import compile_candidate
from ..planning import plan_with
from ..spec import Operator, naming
from .draws import drawn_values

MAXIMUM_CAUSE = 300


class Builder:
    """Builds candidates of the operator that it was given last."""

    def __init__(self) -> None:
        self._request: Request | None = None
        self._hardware: Hardware | None = None
        self._facts = NOTHING

    def answers(self, message: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """To "open": {}. To "build": number, and code or cause, of each candidate as it is ready."""
        if message["do"] == "open":
            operator = naming.parse(message["kernel"])
            self._request = Request("kernel", operator, constants_of(operator, message))
            self._hardware = targets.load(message["target"])
            self._facts = Facts.parse(message["facts"])
            import tvm  # noqa: F401 - its time counts for the opening rather than for the first candidate

            yield {}
            return
        with ThreadPoolExecutor(max_workers=len(os.sched_getaffinity(0))) as executor:
            futures = {executor.submit(self._build, entry): entry["number"] for entry in message["candidates"]}
            for future in as_completed(futures):
                yield {"number": futures[future], **future.result()}

    def _build(self, entry: dict[str, Any]) -> dict[str, Any]:
        assert self._request is not None
        assert self._hardware is not None
        request = self._request
        try:
            plan = plan_with(
                request.operator, self._hardware, request.constants, self._facts, entry["rule"], entry["knobs"],
                "tuning",
            )  # fmt: skip
            bundle, code = compile_candidate(request, plan)
            with open(entry["path"], "wb") as stream:
                stream.write(bundle.to_bytes())
        except Exception as error:  # TVM raises many types, and every failure of a candidate is an answer
            return {"cause": cause_of(error)}
        return {"code": code[:16]}


def constants_of(operator: Operator, message: dict[str, Any]) -> dict[str, Any]:
    """Values of the constant tensors of a task."""
    values = drawn_values(operator, message["seed"], 0, Facts.parse(message["facts"]))
    return {name: values[name] for name in message["constants"]}


def cause_of(error: BaseException) -> str:
    """An exception in one short line."""
    if isinstance(error, LoweringError) and error.__cause__ is not None:
        error = error.__cause__
    text = error.problem if isinstance(error, QCompileError) else str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    kind = "" if isinstance(error, QCompileError) else f"{type(error).__name__}: "
    last = lines[-1] if lines else ""
    return f"{kind}{last.removeprefix(kind)}"[:MAXIMUM_CAUSE] or type(error).__name__
