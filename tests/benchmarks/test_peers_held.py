"""Which peers the benchmarks' mask does not hold, and what becomes of them; all times are made up."""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qcompile.backends.cpu import features as cpu_features
from qcompile.reference import evaluate

FOLDER = Path(__file__).parents[2] / "benchmarks"
LIMITS = {"vpmaddwd alone": 100.0, "vpmaddubsw alone": 200.0}
SENTENCE = "some is not held by the mask: {}; left out of the ratios"


@pytest.fixture(autouse=True)
def _benchmarks_on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))


def part(name: str) -> Any:
    return importlib.import_module(name)


def evidence(rate: float | None, *, is_right: bool, saturates: bool = False, operator: str = "1x2") -> Any:
    limits = {} if rate is None else LIMITS
    return part("held").Evidence("some", operator, "u8s8", is_right, saturates, rate, limits)


@pytest.mark.parametrize(
    ("rate", "is_right", "saturates", "reason"),
    [
        # right sums: 16 products an instruction, and a margin of a tenth
        (68.0, True, False, None),
        (100.0, True, False, None),
        (110.0, True, False, None),
        (111.0, True, False, "it reaches 1.11 times what the ports of AVX2 allow (1x2, u8s8)"),
        (180.0, True, False, "it reaches 1.80 times what the ports of AVX2 allow (1x2, u8s8)"),
        # sums that saturate: 32
        (180.0, False, True, None),
        (220.0, False, True, None),
        (300.0, False, True, "it reaches 1.50 times what the ports of AVX2 allow (1x2, u8s8)"),
        # right sums prove something only of those that would saturate, and without any time
        (None, True, False, None),
        (None, False, True, None),
        (None, True, True, "its sums are right where its kernels for AVX2 saturate (1x2, u8s8)"),
        (50.0, True, True, "its sums are right where its kernels for AVX2 saturate (1x2, u8s8)"),
    ],
)
def test_one_proof_is_enough_and_none_holds(
    rate: float | None, is_right: bool, saturates: bool, reason: str | None
) -> None:
    found = part("held").not_held([evidence(rate, is_right=is_right, saturates=saturates)])
    assert found == ({"some": SENTENCE.format(reason)} if reason else {})


def test_the_strongest_evidence_of_each_peer_is_named() -> None:
    entries = [
        evidence(90.0, is_right=True, operator="slow"),
        evidence(180.0, is_right=True, saturates=True, operator="fast"),
        evidence(150.0, is_right=True, operator="medium"),
    ]
    others = [replace(entry, peer="other", rate=70.0, saturates_on_avx2=False) for entry in entries]
    assert part("held").not_held([*others, *entries]) == {
        "some": SENTENCE.format(
            "it reaches 1.80 times what the ports of AVX2 allow (fast, u8s8), and its sums are right where its kernels "
            "for AVX2 saturate (fast, u8s8)"
        )
    }
    assert part("held").not_held([]) == {}


def test_no_time_no_share() -> None:
    assert evidence(None, is_right=True).port_share is None
    assert replace(evidence(50.0, is_right=True), limits={}).port_share is None
    assert evidence(50.0, is_right=True).port_share == 0.5
    assert evidence(50.0, is_right=False).port_share == 0.25


@pytest.mark.parametrize("types", ["u8s8", "u8u8", "s8s8"])
@pytest.mark.parametrize("text", ["product 3x64x6", "conv 6x7 16->6 3x3"])
def test_sums_of_extremes_do_not_fit_sixteen_bits(types: str, text: str) -> None:
    """Two products of bytes as vpmaddubsw takes them, or four after activations were shifted to int8."""
    operands = part("operands")
    for layout in operands.LAYOUTS:
        operator = operands.operator(part("shapes").parse_layer(text), types, layout)
        values = part("evidence").extreme_values(operator, types)
        data, weights = ("a", "b") if "b" in values else ("input", "filter")
        code = int(values[data].ravel()[0])
        assert (values[data] == code).all()
        centred = values[weights].astype(int) - (128 if types == "u8u8" else 0)
        assert set(np.unique(centred)) == {-127, 127}
        columns = centred.T if weights == "b" else centred.reshape(len(centred), -1)
        assert all(len(set(column.ravel())) == 1 for column in columns)
        assert 4 * abs(code - (128 if code > 127 else 0)) * 127 > 32767
        assert types[0] == "s" or 2 * code * 127 > 32767
        distances = evaluate(operator, values)["output"].astype(int) - int(values["output_zero_point"])
        assert set(np.unique(distances)) == {-80, 80}


def test_types_with_the_whole_range() -> None:
    operands, full_range = part("operands"), part("evidence").full_range
    assert {types: full_range(types) for types in operands.TYPES} == {
        "u8s8": "u8s8", "u8u8": "u8u8", "s8s8": "s8s8", "u8s7": "u8s8",
    }  # fmt: skip


@pytest.mark.skipif("avx2" not in cpu_features.features(), reason="the limits are measured with AVX2")
def test_evidence_of_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is right, one that is not, one that raises, and one without the types."""
    gathering, peers, suites = part("evidence"), part("peers"), part("suites")

    def prepare(change: int, operator: Any, values: Any, threads: int) -> Any:
        assert threads == 1
        output = evaluate(operator, values)["output"] + np.uint8(change)
        return peers.Prepared(lambda: None, lambda: output)

    def peer(name: str, **fields: Any) -> Any:
        common = {"module": "numpy", "distributions": ("numpy",), "supports": lambda operator: True}
        return peers.Peer(name=name, **{**common, **fields})

    chosen = [
        peer("right", prepare=lambda *given: prepare(0, *given), saturates_on_avx2=("u8s8",)),
        peer("wrong", prepare=lambda *given: prepare(9, *given)),
        peer("broken", prepare=lambda *given: 1 / 0),
        peer("other", prepare=lambda *given: prepare(0, *given), supports=lambda operator: False),
    ]
    monkeypatch.setattr(
        gathering, "_rates", lambda prepared, operator: {**dict.fromkeys(prepared, 150.0), **LIMITS}
    )  # fmt: skip
    layer = part("shapes").parse_layer("conv 8x8 4->4 3x3")
    work = [suites.Case("one", "8x8", "u8s7", "NHWC", 1, part("operands").operator(layer, "u8s7", "NHWC"))]
    found, failures = gathering.gather(work, chosen)
    assert failures == {"broken": "ZeroDivisionError: division by zero"}
    assert [(entry.peer, entry.is_right, entry.saturates_on_avx2) for entry in found] == [
        ("right", True, True), ("wrong", False, False),
    ] * 3  # fmt: skip
    assert [entry.rate for entry in found] == [150.0] * 4 + [None] * 2
    assert {entry.types for entry in found} == {"u8s8"}
    assert set(part("held").not_held(found)) == {"right"}
    assert gathering.gather([replace(work[0], types="")], chosen) == ([], {})


def line(**verdicts: str) -> Any:
    measure = part("measure")
    times = {"onnxruntime": 8.0, "torch-fbgemm": 5.0}
    results = {name.replace("_", "-"): word for name, word in verdicts.items()}
    peers = {name: measure.PeerResult(times[name], word, 0.0, 0) for name, word in results.items()}
    return measure.Line("layers", "1x2", "u8s8", "", 1, 1, 10.0, 80.0, 0.0, peers, 0.9, "vpmaddwd")


def test_a_peer_that_is_not_held_is_in_no_ratio_and_in_the_document() -> None:
    whole = line(onnxruntime="exact", torch_fbgemm="exact")
    assert whole.best() == ("torch-fbgemm", 0.5)
    left = whole.without({"torch-fbgemm"})
    assert left.best() == left.best(("exact",)) == ("onnxruntime", 0.8)
    document = left.as_json()
    assert (document["best_right_peer"], document["ratio_to_best_peer"]) == ("onnxruntime", 0.8)
    assert {name: result["is_held"] for name, result in document["peers"].items()} == {
        "onnxruntime": True, "torch-fbgemm": False,
    }  # fmt: skip
    assert document["peers"]["torch-fbgemm"]["microseconds"] == 5.0
    alone = line(torch_fbgemm="exact").without({"torch-fbgemm"})
    assert alone.best() is None
    assert alone.as_json()["ratio_to_best_right_peer"] is None


def test_the_report_names_it(capsys: pytest.CaptureFixture[str]) -> None:
    sentence = "torch-fbgemm is not held by the mask: it is; left out of the ratios"
    lines = [line(onnxruntime="wrong", torch_fbgemm="exact").without({"torch-fbgemm"})]
    part("report").print_report(lines, {}, {"torch-fbgemm": sentence})
    text = capsys.readouterr().out
    assert "x best right peer -, x best peer of any kind 0.80" in text
    assert "torch-fbgemm        x  0.50, all layers by their counts x  0.50; 1 exact; not held, left out above" in text
    assert "counts x  0.80; 1 wrong\n" in text
    assert "0.80 ort all" in " ".join(text.split())
    assert text.splitlines()[-1] == sentence
    assert all(len(row) <= 100 for row in text.splitlines())
