"""The speed of kernels on this machine, beside other libraries' and the machine's limits, in one run.

    python benchmarks/run.py [--suite layers ...] [--threads 1 --threads 2] [--types u8s8,s8s8] [--json] ...

benchmarks/README.md says what the columns mean. Nothing else should run on the machine meanwhile.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import platform
import subprocess
import sys
import tempfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import evidence
import held
import isa_mask
from measure import Line, measure
from operands import LAYOUTS, TYPES
from peers import PEERS, Peer
from report import as_json, print_report
from shapes import ShapeError
from suites import SUITES, Case, cases

import qcompile as qc
from qcompile.backends.targets import resolve
from qcompile.errors import QCompileError


def main() -> int:
    """Prints the tables or the JSON document; the exit status is 2 where the arguments cannot be fulfilled."""
    parser = _parser()
    options = parser.parse_args()
    try:
        peers = [peer for name in options.peers for peer in [PEERS[name]] if peer.version is not None]
        work = [case for suite in options.suite or SUITES for case in cases(suite, options.types, options.layout)]
        before = _before(options.compare) if options.compare else {}
        if options.peers_isa == "avx2" and not isa_mask.is_on():
            if isa_mask.is_needed():
                return _restart(peers)
            _say("--peers-isa avx2 changes nothing: this CPU has neither AVX-512 nor AVX-VNNI")
        for name in options.peers:
            if PEERS[name] not in peers:
                _say(f"absent: {name} (no module {PEERS[name].module} is installed)")
        for peer in peers:
            os.environ.update(peer.environment)
        examined = _examine(work, peers)
        lines = [line.without(examined["not_held"]) for line in _lines(work, peers, options)]
        facts = {**_facts(options, peers), **examined}
    except (ShapeError, QCompileError) as error:
        parser.error(str(error))
    if options.json:
        print(json.dumps(as_json(lines, before, facts), indent=1))
    else:
        print_report(lines, before, facts["not_held"])
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--suite", action="append", help=f"{', '.join(SUITES)}, or a file of layers; may be repeated (default: all)"
    )
    parser.add_argument("--threads", action="append", type=_positive, help="may be repeated (default: 1)")
    parser.add_argument("--types", type=_names(TYPES), default=["u8s8"], help=f"of {','.join(TYPES)} (default: u8s8)")
    parser.add_argument(
        "--layout", type=_names(LAYOUTS), default=list(LAYOUTS), help="of convolutions (default: NCHW,NHWC)"
    )
    parser.add_argument("--peers", type=_names(PEERS), default=list(PEERS), help=f"default: {','.join(PEERS)}")
    parser.add_argument(
        "--peers-isa", choices=["native", "avx2"], default="native",
        help="avx2: the peers see a CPU without AVX-512 and AVX-VNNI; one that uses them anyway is named and left "
        "out of the ratios (default: native)",
    )  # fmt: skip
    parser.add_argument("--target", default="host", help="of our kernels (default: host)")
    parser.add_argument("--records", type=Path, metavar="FILE", help="tuning records for our kernels")
    parser.add_argument("--rounds", type=_positive, default=15, help="turns of each measurement (default: 15)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--compare", type=Path, metavar="OLD.json", help="add the ratio to an earlier --json")
    return parser


def _positive(text: str) -> int:
    """An argument's type: an integer of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no integer of at least 1")
    return int(text)


def _names(accepted: Any) -> Any:
    """An argument's type: names with commas between them."""

    def parse(text: str) -> list[str]:
        names = [name for name in text.split(",") if name]
        for name in names or [text]:
            if name not in accepted:
                raise argparse.ArgumentTypeError(f"unknown {name!r}; accepted: {', '.join(accepted)}")
        return names

    return parse


def _restart(peers: list[Peer]) -> int:
    """Runs the same command in a process whose peers see no more than AVX2."""
    _say("looking for the instructions by which the peers ask what the CPU can do")
    objects = sorted({path for peer in peers for path in peer.masked_objects})
    with tempfile.TemporaryDirectory(prefix="qcompile-mask-") as folder:
        environment = {**os.environ, **isa_mask.environment(objects, Path(folder))}
        for peer in peers:
            environment.update(peer.avx2_environment)
        return subprocess.run([sys.executable, *sys.orig_argv[1:]], env=environment, check=False).returncode


def _examine(work: list[Case], peers: list[Peer]) -> dict[str, Any]:
    """What the peers do behind the mask, which of them it does not hold, and which could not be examined."""
    if not isa_mask.is_on():
        return {"not_held": {}, "not_examined": {}, "evidence": []}
    _say("examining whether the peers keep to AVX2")
    seen, not_examined = evidence.gather(work, peers)
    not_held = held.not_held(seen)
    for name, error in not_examined.items():
        _say(f"{name} could not be examined: {error}")
    for sentence in not_held.values():
        _say(sentence)
    return {"not_held": not_held, "not_examined": not_examined, "evidence": [asdict(entry) for entry in seen]}


def _lines(work: list[Case], peers: list[Peer], options: argparse.Namespace) -> list[Line]:
    compile_options = {}
    if options.records:
        if "records" not in inspect.signature(qc.compile).parameters:
            raise QCompileError("This version of qcompile.compile takes no records.", given=str(options.records))
        compile_options["records"] = options.records
    counts = options.threads or [1]
    total = len(work) * len(counts)
    lines: list[Line] = []
    measured: dict[Any, Line] = {}
    for threads in counts:
        for case in work:
            key = (case.suite, case.types, case.operator, threads)
            if key in measured:  # a product, which is the same in every layout
                lines.append(replace(measured[key], layout=case.layout))
                continue
            words = (case.suite, case.title, case.types, case.layout, f"threads {threads}")
            _say(f"[{len(lines) + 1}/{total}] {' '.join(word for word in words if word)}")
            measured[key] = measure(case, threads, peers, options.rounds, options.target, compile_options)
            lines.append(measured[key])
    return lines


def _facts(options: argparse.Namespace, peers: list[Peer]) -> dict[str, Any]:
    """What a reader of the JSON document has to know; raises where a peer was to be masked and is not."""
    objects = sorted({path for peer in peers for path in peer.masked_objects})
    return {
        "cpu": _cpu(),
        "target": resolve(options.target)[0].name,
        "peers_isa": options.peers_isa,
        "masked": isa_mask.check(objects) if isa_mask.is_on() else [],
        "versions": {name: PEERS[name].version for name in options.peers},
        "rounds": options.rounds,
    }


def _cpu() -> str:
    path = Path("/proc/cpuinfo")
    text = path.read_text(encoding="ascii", errors="replace") if path.exists() else ""
    names = [line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _before(path: Path) -> dict[tuple[str, str, str, str, int], float]:
    """Key of a line -> microseconds, from an earlier result."""
    fields = ("suite", "name", "types", "layout", "threads")
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))["lines"]
        return {tuple(row[field] for field in fields): row["microseconds"] for row in rows}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise QCompileError("This is no result of run.py --json.", given=f"{path}: {error!r}") from error


def _say(text: str) -> None:
    """Progress and remarks, apart from the result."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
