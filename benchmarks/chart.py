"""Draws a result of run.py as an SVG that can be read on light and on dark pages; equal results give equal files.

    python benchmarks/run.py --suite layers --json > speed.json
    python benchmarks/chart.py speed.json -o docs/speed.svg [--suite layers] [--layout NHWC] [--threads 1]

One panel for each combination of types: for each layer the speed of our kernel and of each peer. Bars of peers whose
results are wrong are hatched; peers that were to keep to AVX2 and did not have none. The dashed line is the measured
limit of exact products on the target.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

#: Of text and axes: grey enough for a white page and for a black one.
_INK = "#7a828e"
#: name in the file -> (name in the legend, colour); ours first.
_BARS = {
    "ours": ("qcompile", "#2f81f7"),
    "onnxruntime": ("ONNX Runtime", "#9aa0a6"),
    "onnxruntime-precise": ("ONNX Runtime, weights as u8", "#5f666d"),
    "litert": ("LiteRT (XNNPACK)", "#e69f00"),
    "torch-fbgemm": ("PyTorch fbgemm", "#d55e00"),
    "torch-onednn": ("PyTorch oneDNN", "#cc79a7"),
    "openvino": ("OpenVINO", "#7fb069"),
}
_STYLE: dict[str, Any] = {
    "svg.hashsalt": "qcompile",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9,
    "text.color": _INK,
    "axes.labelcolor": _INK,
    "axes.edgecolor": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "hatch.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def select(document: dict[str, Any], suite: str, layout: str, threads: int) -> dict[str, list[dict[str, Any]]]:
    """Types -> lines of the suite, in the order of the file, with the peers that are held.

    Raises:
        SystemExit: there is none.
    """
    chosen: dict[str, list[dict[str, Any]]] = {}
    for line in document["lines"]:
        if (line["suite"], line["threads"]) == (suite, threads) and line["layout"] in (layout, ""):
            peers = {name: result for name, result in line["peers"].items() if result.get("is_held", True)}
            chosen.setdefault(line["types"], []).append({**line, "peers": peers})
    if not chosen:
        raise SystemExit(f"the file has no line of the suite {suite!r}, layout {layout}, threads {threads}")
    return chosen


def draw(panels: dict[str, list[dict[str, Any]]], title: str, path: Path) -> None:
    """Writes the SVG.

    Args:
        panels: types -> lines.
        title: above the chart.
        path: of the file.
    """
    try:
        import matplotlib
    except ImportError as error:
        raise SystemExit("matplotlib, which draws the chart, is not installed; it is in the extra `bench`") from error

    matplotlib.use("svg")
    from matplotlib import pyplot

    with matplotlib.rc_context(_STYLE):
        heights = [sum(1.2 + len(line["peers"]) for line in lines) for lines in panels.values()]
        figure, axes = pyplot.subplots(
            len(panels), 1, figsize=(9, 0.8 + 0.16 * sum(heights) + 0.5 * len(panels)), squeeze=False, sharex=True,
            gridspec_kw={"height_ratios": heights}, layout="constrained",
        )  # fmt: skip
        for axis, (types, lines) in zip(axes[:, 0], panels.items(), strict=True):
            _panel(axis, types, lines)
        axes[-1, 0].set_xlabel("10⁹ multiply-accumulates a second; longer is faster")
        figure.suptitle(title, fontsize=10)
        figure.legend(handles=_legend(panels), loc="outside lower center", ncols=4, frameon=False)
        figure.savefig(path, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
        pyplot.close(figure)


def _panel(axis: Any, types: str, lines: list[dict[str, Any]]) -> None:
    position, ticks = 0.0, []
    for line in lines:
        operations = line["rate"] * line["microseconds"]
        bars = [("ours", line["rate"], None)]
        bars += [
            (name, operations / result["microseconds"], result["verdict"])
            for name, result in line["peers"].items()
            if name in _BARS
        ]
        ticks.append(position + (len(bars) - 1) / 2)
        for name, rate, verdict in bars:
            is_wrong = verdict == "wrong"
            colour = _BARS[name][1]
            axis.barh(
                position, rate, height=0.86, color="none" if is_wrong else colour, edgecolor=colour,
                hatch="////" if is_wrong else None, linewidth=0.8,
            )  # fmt: skip
            axis.annotate(
                f"{rate:.1f}" if rate < 20 else f"{rate:.0f}", (rate, position), (3, 0), textcoords="offset points",
                va="center", fontsize=7,
            )  # fmt: skip
            position += 1
        position += 1.2
    limits = [line["limits"]["port_share"] / 1e9 for line in lines if "port_share" in line["limits"]]
    if limits:
        axis.axvline(statistics.median(limits), color=_INK, linestyle="--", linewidth=0.8)
    axis.set_yticks(ticks, [line["name"] for line in lines])
    axis.set_ylim(position - 1, -1)
    axis.set_title(f"activations x weights: {types[:2]} x {types[2:]}", loc="left", fontsize=9)


def _legend(panels: dict[str, list[dict[str, Any]]]) -> list[Any]:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    lines = [line for panel in panels.values() for line in panel]
    present = {"ours", *(name for line in lines for name in line["peers"])}
    handles: list[Any] = [Patch(color=colour, label=text) for name, (text, colour) in _BARS.items() if name in present]
    if any(result["verdict"] == "wrong" for line in lines for result in line["peers"].values()):
        handles.append(Patch(facecolor="none", edgecolor=_INK, hatch="////", label="results are wrong (saturated)"))
    multipliers = {line.get("multiplier") or "vpmaddwd" for line in lines if "port_share" in line["limits"]}
    if multipliers:
        label = f"limit of {', '.join(sorted(multipliers))}"
        handles.append(Line2D([], [], color=_INK, linestyle="--", linewidth=0.8, label=label))
    return handles


def main() -> None:
    """Writes the chart."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("results", type=Path, help="output of run.py --json")
    parser.add_argument("-o", "--output", type=Path, required=True, help="the SVG file")
    parser.add_argument("--suite", default="layers", help="default: layers")
    parser.add_argument("--layout", default="NHWC", help="default: NHWC")
    parser.add_argument("--threads", type=int, default=1, help="default: 1")
    parser.add_argument("--types", help="panels, with commas; default: all of the file")
    options = parser.parse_args()
    document = json.loads(options.results.read_text(encoding="utf-8"))
    panels = select(document, options.suite, options.layout, options.threads)
    if options.types:
        panels = {types: lines for types, lines in panels.items() if types in options.types.split(",")}
        if not panels:
            raise SystemExit(f"the file has no line of the types {options.types}")
    isa = ", peers restricted to AVX2" if document["peers_isa"] == "avx2" else ""
    left_out = [_BARS[name][0] for name in document.get("not_held", {}) if name in _BARS]
    isa += f" (without {', '.join(left_out)}: not held)" if left_out else ""
    words = f"{options.threads} thread{'s' if options.threads > 1 else ''}, {options.layout}"
    draw(panels, f"{document['cpu']}, target {document['target']}{isa}, {words}", options.output)


if __name__ == "__main__":
    main()
