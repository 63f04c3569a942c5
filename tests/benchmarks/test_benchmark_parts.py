"""Parts of the benchmarks: lists of layers, operands, verdicts, limits."""

from __future__ import annotations

import importlib
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qcompile.backends.cpu import features as cpu_features
from qcompile.reference import evaluate

FOLDER = Path(__file__).parents[2] / "benchmarks"
INTEGER_PEERS = ["onnxruntime", "onnxruntime-precise", "litert", "torch-fbgemm", "torch-onednn", "openvino"]


@pytest.fixture(autouse=True)
def _benchmarks_on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))


def part(name: str) -> Any:
    return importlib.import_module(name)


@pytest.mark.parametrize(
    ("suite", "layers", "operations", "tolerance"),
    [
        ("layers", 8, 0.783e9, 0.001e9),
        ("resnet50", 54, 4.09e9, 0.005e9),
        ("mobilenetv2", 53, 0.30e9, 0.005e9),
        ("bert_base", 73, 10.87e9, 0.005e9),
    ],
)
def test_the_networks_are_complete(suite: str, layers: int, operations: float, tolerance: float) -> None:
    found = part("shapes").read_shapes(FOLDER / "shapes" / f"{suite}.txt")
    assert sum(layer.count for layer in found) == layers
    assert sum(layer.count * layer.operations for layer in found) == pytest.approx(operations, abs=tolerance)


def test_a_layer_of_everything() -> None:
    layer = part("shapes").parse_layer("conv 10x11 4->8 3x5 stride=2,1 pad=0,1,2,3 groups=2 count=7")
    assert (layer.size, layer.taps, layer.strides, layer.padding) == ((10, 11), (3, 5), (2, 1), (0, 1, 2, 3))
    assert (layer.channels, layer.outputs, layer.groups, layer.count) == (4, 8, 2, 7)
    assert layer.output_size == (5, 11)
    assert layer.operations == 5 * 11 * 8 * 3 * 5 * 2
    assert layer.title == "g2 3x5 s2x1 10x11 4->8"


@pytest.mark.parametrize(
    ("size", "stride", "padding"),
    [("224x224", 2, (0, 0, 1, 1)), ("7x8", 1, (1, 1, 1, 1)), ("7x8", 2, (1, 0, 1, 1)), ("8x8", 3, (0, 0, 1, 1))],
)
def test_tensorflows_padding(size: str, stride: int, padding: tuple[int, ...]) -> None:
    layer = part("shapes").parse_layer(f"conv {size} 3->8 3x3 stride={stride} pad=same")
    assert layer.padding == padding
    assert layer.output_size == tuple(-(-extent // stride) for extent in layer.size)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("pool 2x2", "unknown kind 'pool'; accepted: conv, product"),
        ("conv 56x56 64->64", "is no layer; an example: conv 56x56 64->64 3x3"),
        ("product 1x2", "an example: product 128x768x3072"),
        ("product 1x0x2", "a size is 0"),
        ("product 1x2x3 pad=1", "unknown option 'pad=1'; accepted: count"),
        ("conv 8x8 4->4 3x3 pad=1,2", "'pad=1,2': accepted: 1 or 4 numbers or same"),
        ("conv 8x8 4->4 3x3 stride=0", "must be at least 1"),
        ("conv 8x8 4->4 3x3 stride=x", "'stride=x': accepted: 1 or 2 numbers"),
        ("conv 8x8 4->6 3x3 groups=4", "groups=4 does not divide the channels 4->6"),
        ("conv 2x8 4->4 3x3", "larger than the padded input 2x8"),
    ],
)
def test_lines_that_are_no_layers(text: str, words: str, tmp_path: Path) -> None:
    shapes = part("shapes")
    path = tmp_path / "suite.txt"
    path.write_text(f"# a comment\n\n{text}  # another\n")
    with pytest.raises(shapes.ShapeError, match=r"suite\.txt:3: ") as caught:
        shapes.read_shapes(path)
    assert words in str(caught.value)


def test_files_that_are_no_suites(tmp_path: Path) -> None:
    shapes = part("shapes")
    path = tmp_path / "suite.txt"
    path.write_text("# nothing\n")
    with pytest.raises(shapes.ShapeError, match="there is no layer"):
        shapes.read_shapes(path)
    path.write_text("product 1x2x3\nproduct 1x2x3\n")
    with pytest.raises(shapes.ShapeError, match="two lines are the layer '1x2x3'; give it a count"):
        shapes.read_shapes(path)


@pytest.mark.parametrize("types", ["u8s8", "u8u8", "s8s8", "u8s7"])
@pytest.mark.parametrize("text", ["conv 9x9 8->12 3x3 pad=1", "conv 9x9 8->8 3x3 pad=1 groups=8", "product 7x40x24"])
def test_operands(types: str, text: str) -> None:
    """Weights fill their range in every channel, outputs spread, and both layouts are the same convolution."""
    operands = part("operands")
    layer = part("shapes").parse_layer(text)
    deviations = []
    for layout in operands.LAYOUTS:
        operator = operands.operator(layer, types, layout)
        values = operands.values(operator, types)
        weights = values["b"].T if "b" in values else values["filter"]
        centred = weights.astype(np.int16) - (128 if types == "u8u8" else 0)
        assert (np.abs(centred).reshape(len(centred), -1).max(axis=1) == (64 if types == "u8s7" else 127)).all()
        deviations.append(float(np.std(evaluate(operator, values)["output"])))
        assert operator.operations == layer.operations
    assert all(30 < deviation < 90 for deviation in deviations)


def test_verdicts() -> None:
    judge = part("verdict").judge
    right = np.array([0, 100, 255, 7], np.uint8)
    assert judge(right, right).word == "exact"
    assert judge(np.array([0, 101, 254, 7], np.uint8), right).word == "wrong"
    many = np.zeros(200, np.uint8)
    assert judge(np.eye(1, 200, 5, dtype=np.uint8)[0], many).word == "rounding"
    verdict = judge(np.array([255, 100, 255, 7], np.uint8), right)
    assert (verdict.word, verdict.wrong_share, verdict.largest_difference) == ("wrong", 0.25, 255)
    with pytest.raises(ValueError, match=r"the output is uint8\(2,\) and not uint8\(4,\)"):
        judge(right[:2], right)


def test_turns() -> None:
    seen: list[str] = []
    calls = {"first": lambda: seen.append("first"), "second": lambda: seen.append("second")}
    seconds = part("interleaved").medians(calls, rounds=2, seconds_per_round=1e-6)
    assert set(seconds) == set(calls)
    assert all(value > 0 for value in seconds.values())
    assert part("interleaved").spread([1, 2, 2, 2, 2, 2, 2, 9]) == 0
    assert part("interleaved").spread([1.0, 2.0, 3.0, 4.0]) == pytest.approx(0.4)
    assert seen.index("second") < len(seen) - 1 - seen[::-1].index("first")


@pytest.mark.skipif("avx2" not in cpu_features.features(), reason="the limits are measured with AVX2")
def test_limits() -> None:
    limits, medians = part("limits"), part("interleaved").medians
    ports = {name: limits.multiply_add_limit(1, name) for name in limits.MULTIPLIERS if limits.is_available(name)}
    assert "vpmaddwd" in ports
    chosen = {**ports, "L2": limits.read_limit("L2", 1), "two": limits.read_limit("L2", 2)}
    assert limits.multiplier_of("x86_64-avx2") == "vpmaddwd"
    assert limits.multiplier_of("x86_64-avxvnni") == "vpdpbusd ymm"
    assert limits.multiplier_of("x86_64-avx512vnni") == "vpdpbusd zmm"
    seconds = medians({name: limit.call for name, limit in chosen.items()}, rounds=1, seconds_per_round=0)
    assert all(chosen[name].rate(value) > 0 for name, value in seconds.items())
    sizes = limits.cache_bytes()
    if {"L2", "L3"} <= set(sizes):
        assert limits.memory_level(sizes["L2"] // 2, 1) == "L2"
        assert limits.memory_level(sizes["L3"] // 2, 1) == "L3"
        assert limits.memory_level(sizes["L3"] * 2, 1) == "DRAM"


def test_every_peer_says_whether_it_is_installed() -> None:
    peers = part("peers").PEERS
    assert list(peers) == [*INTEGER_PEERS, "tensorflow"]
    for peer in peers.values():
        if peer.version is None:
            assert peer.masked_objects == []
        elif peer.objects:
            assert all(path.is_file() for path in peer.masked_objects)
            assert peer.masked_objects


def test_a_peer_that_fails_is_reported_and_the_others_are_measured(capsys: pytest.CaptureFixture[str]) -> None:
    peers, suites = part("peers"), part("suites")
    broken = replace(peers.PEERS["onnxruntime"], name="broken", prepare=lambda *_: 1 / 0)
    operator = part("operands").operator(part("shapes").parse_layer("product 2x4x8"), "u8u8", "")
    case = suites.Case("one", "2x4x8", "u8u8", "", 1, operator)
    line = part("measure").measure(case, 1, [broken, peers.PEERS["onnxruntime"]], 1, "host", {})
    assert line.failures == {"broken": "ZeroDivisionError: division by zero"}
    assert line.peers["onnxruntime"].verdict == "exact"
    part("report").print_report([line], {}, {})
    assert "broken failed at 1 of 1, with 'ZeroDivisionError" in capsys.readouterr().out


@pytest.mark.parametrize("name", INTEGER_PEERS)
def test_installed_peers_compute_the_same(name: str) -> None:
    """With small weights, of which no product saturates on any CPU; in every layout and for all types they have."""
    operands, shapes, peer = part("operands"), part("shapes"), part("peers").PEERS[name]
    if peer.version is None:
        pytest.skip(f"{name} is not installed")
    supported = 0
    for text in (
        "conv 9x10 8->12 3x3 stride=2 pad=1",
        "conv 9x10 8->12 3x3 stride=2 pad=same",
        "conv 9x10 16->16 3x3 pad=1 groups=16",
        "product 7x40x24",
        "product 1x40x24",
    ):
        for types in operands.TYPES:
            for layout in operands.LAYOUTS:
                operator = operands.operator(shapes.parse_layer(text), types, layout)
                if not peer.supports(operator):
                    continue
                supported += 1
                values = operands.values(operator, types)
                weights = "b" if "b" in values else "filter"
                centre = 128 if types == "u8u8" else 0
                small = (values[weights].astype(np.int16) - centre) // 8 + centre
                values[weights] = small.astype(values[weights].dtype)
                prepared = peer.prepare(operator, values, 1)
                prepared.call()
                verdict = part("verdict").judge(prepared.output(), evaluate(operator, values)["output"])
                assert verdict.word in ("exact", "rounding"), (text, types, layout, verdict)
    assert supported >= 5


def test_a_chart_without_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(SystemExit, match="matplotlib, which draws the chart, is not installed"):
        part("chart").draw({}, "title", tmp_path / "chart.svg")
