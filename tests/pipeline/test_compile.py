"""compile(): its arguments, the cache, the tools it needs, and the messages for what is wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import qcompile as qc
from qcompile import catalogue
from qcompile.backends import targets
from qcompile.pipeline import compile as pipeline
from qcompile.pipeline.codes import source_digest
from qcompile.reference import evaluate
from qcompile.reference.random_values import random_values
from qcompile.schedules import cpu_widen16
from qcompile.schedules.rule import check_knobs, load_rule
from qcompile.system import cache, tvm_versions
from qcompile.system.hashing import digest

from ..support import small_constants, small_convolution, small_input, stage_texts


def test_all_parameters_as_constants_or_at_run_time_or_mixed() -> None:
    operator, constants = small_convolution(), small_constants()
    expected = qc.reference(operator, input=small_input(), **constants)
    names = list(constants)
    for chosen in ([], names, names[::2], names[1::2], ["filter"], ["filter_zero_point"], ["input_scale", "bias"]):
        kernel = qc.compile(operator, "host", {name: constants[name] for name in chosen})
        run_time = {name: value for name, value in constants.items() if name not in chosen}
        assert np.array_equal(kernel(input=small_input(), **run_time), expected)


def test_nhwc_equals_nchw() -> None:
    constants = small_constants()
    nhwc = qc.QuantizedLinearConvolution(
        qc.Tensor((1, 6, 5, 4), "uint8", "NHWC"), qc.Tensor((8, 3, 3, 4), "int8"), bias=True, start_padding=(1, 1),
        end_padding=(1, 1),
    )  # fmt: skip
    kernel = qc.compile(nhwc, constants={**constants, "filter": constants["filter"].transpose(0, 2, 3, 1)})
    expected = qc.reference(small_convolution(), input=small_input(), **constants)
    assert np.array_equal(kernel(input=small_input().transpose(0, 2, 3, 1)), expected.transpose(0, 2, 3, 1))


def test_progress_is_reported() -> None:
    seen: list[tuple[int, int, str]] = []
    qc.compile([small_convolution()], "x86_64", progress=lambda *step: seen.append(step))
    assert seen == [(0, 1, small_convolution().name), (1, 1, "")]


@pytest.mark.parametrize(
    ("constants", "message"),
    [
        ({"filter": np.zeros((8, 4, 3, 2), np.int8)}, "filter has the wrong shape"),
        ({"filter": np.zeros((8, 4, 3, 3), np.uint8)}, "filter has the wrong dtype"),
        ({"filter": np.zeros((8, 4, 3, 3), np.float32)}, "filter has the wrong dtype"),
        ({"filters": 0}, "no tensor of that name"),
        ({"bias": np.zeros(8, np.int64)}, "bias has the wrong dtype"),
        ({"bias": 0}, "bias has the wrong shape"),
        ({"filter_zero_point": np.uint8(3)}, "filter_zero_point has the wrong dtype"),
        ({"input_zero_point": -1}, "input_zero_point has a number outside uint8"),
        ({"input_zero_point": 1.0}, "input_zero_point has the wrong dtype"),
        ({"input_scale": "1"}, "input_scale has the wrong dtype"),
        ([], "must be a mapping"),
        ({**small_constants(), "input": small_input()}, "nothing left to compute"),
    ],
)
def test_wrong_constants(constants: Any, message: str) -> None:
    with pytest.raises(qc.InvalidTensorError, match=message):
        qc.compile(small_convolution(), constants=constants)


@pytest.mark.parametrize("stage", ["compute", "schedule"])
def test_what_tvm_refuses_is_an_error_of_ours(stage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise ValueError("there is no such loop")

    if stage == "compute":
        monkeypatch.setattr(catalogue, "compute_function", lambda operator: refuse)
    else:
        monkeypatch.setattr(cpu_widen16, "schedule", refuse)
    operator = small_convolution()
    with pytest.raises(qc.LoweringError, match=f"could not schedule {operator.name} on x86_64: there is no such loop"):
        stage_texts(operator, frozenset(), targets.load("x86_64"), ["scheduled"])


@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan"), float("inf"), -float("inf"), 1e-38, 1e39])
@pytest.mark.parametrize("name", ["input_scale", "filter_scale", "output_scale"])
def test_wrong_scales(name: str, bad: float) -> None:
    with pytest.raises(qc.InvalidQuantizationError, match=f"{name} has a value that is no scale"):
        qc.compile(small_convolution(), constants={**small_constants(), name: bad})


def test_scales_whose_product_overflows() -> None:
    with pytest.raises(qc.InvalidQuantizationError, match=r"input_scale \* filter_scale is not a usable"):
        qc.compile(small_convolution(), constants={"input_scale": 1e30, "filter_scale": 1e30, "output_scale": 1e30})


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((small_convolution(), "x86"), qc.UnknownNameError, "Unknown target"),
        ((small_convolution(), []), qc.UnknownNameError, "No target is given"),
        ((small_convolution(), "missing.toml"), qc.TargetFileError, "cannot be read"),
        ((small_convolution(), 5), qc.UnknownNameError, "Not a target"),
        ((small_convolution(), [None]), qc.UnknownNameError, "Not a target"),
        (({"": small_convolution()},), qc.InvalidOperatorError, "name is unusable"),
        (({"a\0b": small_convolution()},), qc.InvalidOperatorError, "name is unusable"),
        (({"\ud800": small_convolution()},), qc.InvalidOperatorError, "name is unusable"),
        (({"x" * 2000: small_convolution()},), qc.InvalidOperatorError, "name is unusable"),
        (({1: small_convolution()},), qc.InvalidOperatorError, "name is unusable"),
        (({"a": small_convolution()}, "host", ["a"]), qc.InvalidTensorError, "must be a mapping"),
        (([small_convolution()], "host", 5), qc.InvalidTensorError, "one mapping for each"),
        (
            (qc.QuantizedLinearMatrixMultiply(qc.Tensor((300_000_000, 1), "int8"), qc.Tensor((1, 1), "int8")),),
            qc.UnsupportedError, "of (24|48)000000[0-9]+ elements",
        ),
        (([],), qc.InvalidOperatorError, "nothing to compile"),
        ((7,), qc.InvalidOperatorError, "nothing to compile"),
        (([7],), qc.InvalidOperatorError, "Not an operator"),
        (([small_convolution()], "host", [{}, {}]), qc.InvalidTensorError, "one mapping for each operator"),
        (([small_convolution()], "host", {"input_scale": 1.0}), qc.InvalidTensorError, "one mapping for each"),
        (({"a": small_convolution()}, "host", {"b": {}}), qc.InvalidTensorError, "kernels that are not compiled"),
        (("missing.onnx",), qc.ModelError, "missing.onnx"),
        (("missing.onnx", "host", {}), qc.InvalidTensorError, "a model brings its own"),
    ],
)  # fmt: skip
def test_wrong_arguments(arguments: tuple[Any, ...], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        qc.compile(*arguments)


def test_other_arithmetic_is_refused_by_name() -> None:
    with pytest.raises(qc.UnsupportedError, match="requantize arithmetic"):
        qc.compile(small_convolution(), requantize="tflite")
    with pytest.raises(qc.InvalidTensorError, match="input_shapes= is for ONNX models"):
        qc.compile([small_convolution()], input_shapes={})


def test_no_c_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QCOMPILE_CACHE", "off")
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(qc.ToolchainError, match=r"(?s)No C compiler was found.*install gcc"):
        qc.compile(small_convolution())
    monkeypatch.setenv("CC", "no-such-compiler -m64")
    with pytest.raises(qc.ToolchainError, match="CC=no-such-compiler -m64"):
        qc.compile(small_convolution())


def test_a_c_compiler_that_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    compiler = tmp_path / "cc"
    compiler.write_text("#!/bin/sh\necho 'fatal error: everything is wrong' >&2\nexit 3\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", str(compiler))
    monkeypatch.setenv("QCOMPILE_CACHE", "off")
    with pytest.raises(qc.ToolchainError, match=r"exit status 3\)[\s\S]*everything is wrong"):
        qc.compile(small_convolution())


@pytest.mark.parametrize(
    "versions",
    [
        {"apache-tvm": "0.27.0.post1", "apache-tvm-ffi": "0.1.15.post2"},
        {"apache-tvm": "0.28.0", "apache-tvm-ffi": "0.1.14.post1"},
        {"apache-tvm": None, "apache-tvm-ffi": None},
    ],
)
def test_a_wrong_pair_of_tvm_versions(monkeypatch: pytest.MonkeyPatch, versions: dict[str, str | None]) -> None:
    def version(package: str) -> str:
        found = versions.get(package, "1")
        if found is None:
            raise metadata.PackageNotFoundError(package)
        return found

    monkeypatch.setenv("QCOMPILE_CACHE", "off")
    monkeypatch.setattr(metadata, "version", version)
    with pytest.raises(qc.MissingDependencyError, match=r"one pair of versions[\s\S]*pip install"):
        qc.compile(small_convolution())


def test_the_pinned_versions_are_those_of_the_package() -> None:
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    assert f'"apache-tvm=={tvm_versions.TVM[1]}"' in text
    assert '"apache-tvm-ffi>=0.1.14.post0,<0.1.15"' in text


def test_host_is_a_target_of_this_machine() -> None:
    assert targets.host().name in {entry.name for entry in targets.load_all()}
    assert qc.compile(small_convolution()).variant.target == targets.host().name


TARGET_FILE = """
name = "mine"
description = "my own"
kind = "cpu"
rules = ["cpu_plain"]
[cpu]
architecture = "x86_64"
required_features = []
vector_bits = 128
[target]
kind = "llvm"
mtriple = "x86_64-unknown-linux-gnu"
mcpu = "x86-64"
"""


def test_a_target_file_of_the_users_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(TARGET_FILE)
    kernel = qc.compile(small_convolution(), str(path), small_constants())
    assert kernel.variant.target == "mine"
    assert kernel.variant.knobs_source == "rule"
    expected = qc.reference(small_convolution(), input=small_input(), **small_constants())
    assert np.array_equal(kernel(input=small_input()), expected)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('kind = "cpu"', 'kind = "tpu"', "unknown kind"),
        ("vector_bits = 128", "vector_bits = 100", "vector_bits has an unknown value"),
        ("vector_bits = 128", "vector_bits = 128\nvector_registers = 17", "vector_registers has an unknown value"),
        ("vector_bits = 128", 'vector_bits = 128\nemulated_cpu = "pentium"', "emulated_cpu is not a CPU(?s:.*)icelake"),
        ("vector_bits = 128", "vector_bits = 128\nvector_registers = true", "vector_registers"),
        ("vector_bits = 128", "vector_bits = 128\nproducts_in_flight = 0", "products_in_flight is out of range"),
        ("vector_bits = 128", "vector_bits = 128\nfilter_load_cost = nan", "filter_load_cost is out of range"),
        *(
            (
                "vector_bits = 128",
                f'vector_bits = 128\ninstructions = ["{name}"]',
                rf"(?s)instructions has an entry that is unknown.*128 bits.*{name}.*accepted: pmaddwd_128",
            )
            for name in ("vpdpbusd", "vpdpbusd_256", "vpdpbusds_128", "udot", "llvm.x86.sse2.pmadd.wd")
        ),
        (
            "vector_bits = 128",
            'vector_bits = 128\ninstructions = ["pmaddubsw_128"]',
            "pmaddubsw_128 needs pmaddwd_128, which instructions lacks",
        ),
        ("rules =", "preference = -1\nrules =", "preference is out of range"),
        ("rules =", 'architecture = "x86_64"\nvector_bits = 128\nrules =', r"move them to the table \[cpu\]"),
        ("[cpu]", "[gpu]", "unknown field"),
        ("vector_bits = 128", 'vector_bits = "128"', "vector_bits has the wrong type"),
        ("vector_bits = 128", "", "'vector_bits' is missing"),
        ('"x86_64"\n', '"x87"\n', "architecture has an unknown value"),
        ("required_features = []", 'required_features = ["avx7"]', "unknown CPU feature"),
        ("vector_bits = 128", "vector_bits = 128\ncolour = 3", "unknown field"),
        ('rules = ["cpu_plain"]', "rules = [3]", "rules has the wrong type(?s:.*)a list of strings"),
        ("name", "name = =", "cannot be read"),
        ('name = "mine"', 'name = "../mine"', "name is unusable"),
        ('rules = ["cpu_plain"]', "rules = []", "rules is empty"),
        ('mcpu = "x86-64"', 'mcpu = "nonsense"', "LLVM does not know the CPU 'nonsense'"),
    ],
)
def test_wrong_target_files(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(TARGET_FILE.replace(old, new, 1))
    with pytest.raises(qc.TargetFileError, match=message):
        qc.compile(small_convolution(), str(path))


def test_unknown_rules_and_code_generators(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QCOMPILE_CACHE", "off")
    path = tmp_path / "mine.toml"
    for name in ("cpu_magic", "rule", "__init__", "os", "../rule"):
        path.write_text(TARGET_FILE.replace("cpu_plain", name))
        with pytest.raises(qc.UnknownNameError, match="Unknown schedule rule"):
            qc.compile(small_convolution(), str(path))
    path.write_text(TARGET_FILE.replace('mcpu = "x86-64"', 'mcpu = "x86-64"\nmystery = 3'))
    with pytest.raises(qc.TargetFileError, match=r"TVM refuses the table \[target\] of mine: Unknown config option"):
        qc.compile(small_convolution(), str(path))


@pytest.mark.parametrize(
    ("fields", "options", "message"),
    [
        ('instructions = ["vpdpbusd_128"]', 'mcpu = "x86-64"', "needs the feature avxvnni or avx512vl"),
        ('instructions = ["vpdpwssd_128"]', 'mcpu = "x86-64"', "which mcpu and mattr do not enable"),
        ('instructions = ["pmaddwd_128", "pmaddubsw_128"]', 'mcpu = "x86-64"', "needs the feature ssse3"),
        ("", 'mcpu = "x86-64"\nmattr = ["+avx513"]', r"LLVM does not know the feature '\+avx513' of mattr"),
        (
            "",
            'mcpu = "x86-64"\nmattr = ["+avxvnni"]',
            "enable avx, avx2, avxvnni.* but required_features does not list them",
        ),
        ("", 'mcpu = "x86-64-v2"', "enable popcnt, sse3"),
    ],
)
def test_instructions_that_the_cpu_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fields: str, options: str, message: str
) -> None:
    """LLVM would end the process, or go on without the feature."""
    monkeypatch.setenv("QCOMPILE_CACHE", "off")
    path = tmp_path / "mine.toml"
    content = TARGET_FILE.replace("vector_bits = 128", f"vector_bits = 128\n{fields}")
    path.write_text(content.replace('mcpu = "x86-64"', options))
    with pytest.raises(qc.TargetFileError, match=message):
        qc.compile(small_convolution(), str(path))


def test_two_targets_of_one_name(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(TARGET_FILE.replace('"mine"', '"x86_64"'))
    with pytest.raises(qc.UnknownNameError, match="Two different targets have the same name"):
        qc.compile(small_convolution(), [str(path), "x86_64"])


def test_knobs_are_checked() -> None:
    rule = load_rule("cpu_plain")
    assert check_knobs(rule, {"tile": 2}, "here")["tile"] == 2
    for knobs, message in (({"tyle": 2}, "no such knob"), ({"tile": 99}, "out of range"), ({"tile": "2"}, "out of")):
        with pytest.raises(qc.TargetFileError, match=message):
            check_knobs(rule, knobs, "here")


def test_stages_can_be_looked_at() -> None:
    operator = small_convolution()
    texts = stage_texts(operator, frozenset(), targets.host(), ["computed", "scheduled", "lowered", "assembly"])
    assert "nearbyint" in texts["computed"], "as the tensor expressions say it, before any backend has touched it"
    assert "llvm.lrint" not in texts["computed"]
    assert "nearbyint" not in texts["scheduled"], "the rounding instruction is chosen before scheduling"
    assert "llvm.lrint" in texts["scheduled"]
    assert "T.vectorized" in texts["scheduled"]
    assert "T.parallel" not in texts["scheduled"], "a tiny operator runs in one thread"
    assert "cvtps2dq" in texts["assembly"]
    with pytest.raises(qc.UnknownNameError, match="do not pass this stage"):
        stage_texts(operator, frozenset(), targets.host(), ["nonsense"])


def test_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QCOMPILE_CACHE", str(tmp_path / "cache"))
    first = qc.compile(small_convolution(), "x86_64", small_constants())._content.bytes
    entries = [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert len(entries) == 4  # a kernel and the three native objects
    assert qc.compile(small_convolution(), "x86_64", small_constants())._content.bytes == first
    contents = [path.read_bytes() for path in entries]
    for path in entries:  # a damaged entry counts as missing
        path.write_bytes(path.read_bytes()[:-1] + b"?")
    assert qc.compile(small_convolution(), "x86_64", small_constants())._content.bytes == first
    for path, content in zip(entries, contents[1:] + contents[:1], strict=True):  # and so does another's
        path.write_bytes(content)
    assert qc.compile(small_convolution(), "x86_64", small_constants())._content.bytes == first


def test_a_cached_kernel_needs_no_tvm(tmp_path: Path, cache_folder: Path) -> None:
    qc.compile(small_convolution(), "x86_64")
    program = (
        "import sys, qcompile as qc\n"
        "from tests.support import small_convolution\n"
        "qc.compile(small_convolution(), 'x86_64')\n"
        "assert 'tvm' not in sys.modules\n"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_cache_that_cannot_be_written_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    monkeypatch.setenv("QCOMPILE_CACHE", str(blocked))
    with pytest.warns(UserWarning, match="cache of compiled kernels is not used"):
        kernel = qc.compile(small_convolution(), "x86_64", small_constants())
    assert kernel(input=small_input()).shape == (1, 8, 6, 5)


def test_the_cache_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QCOMPILE_CACHE", "off")
    assert cache.folder() is None
    monkeypatch.delenv("QCOMPILE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache.folder() == Path.home() / ".cache" / "qcompile"
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache.folder() == Path("/somewhere/qcompile")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache.folder() == Path.home() / ".cache" / "qcompile"


def test_a_changed_source_changes_the_keys() -> None:
    assert digest("a", "bc") != digest("ab", "c")
    assert digest("a") != digest(b"a", "")
    assert len(source_digest("cpu")) == 64


def test_nothing_to_compile() -> None:
    with pytest.raises(qc.InvalidOperatorError, match="no quantized operator"):
        pipeline.compile_requests([], "host")


def test_a_compiler_with_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QCOMPILE_CACHE", "off")
    monkeypatch.setenv("CC", f"{os.environ.get('CC', 'cc')} -O1")
    kernel = qc.compile(small_convolution(), "x86_64", small_constants())
    assert kernel(input=small_input()).shape == (1, 8, 6, 5)


@pytest.mark.parametrize(
    "operator",
    [
        # the columns that are read are padding alone
        qc.ConvolutionInteger(
            qc.Tensor((1, 1, 1, 2), "uint8", "NHWC"), qc.Tensor((16, 1, 3, 2), "int8", "NHWC"), strides=(1, 4),
            start_padding=(0, 8),
        ),
        # steps that are never taken
        qc.ConvolutionInteger(
            qc.Tensor((1, 1, 8, 300), "uint8", "NHWC"), qc.Tensor((16, 1, 3, 300), "int8", "NHWC"),
            dilations=(16_000_000, 1),
        ),
        qc.ConvolutionInteger(
            qc.Tensor((1, 2, 8, 300), "uint8", "NHWC"), qc.Tensor((16, 2, 3, 300), "int8", "NHWC"),
            strides=(16_000_000, 1), start_padding=(0, 1), end_padding=(0, 0),
        ),
        qc.ConvolutionInteger(
            qc.Tensor((1, 34, 1, 1), "uint8"), qc.Tensor((34, 1, 11, 18), "int8"), strides=(8_029_642, 11),
            start_padding=(48, 2), end_padding=(2, 3045), dilations=(1, 2), group_count=34,
        ),
    ],
    ids=lambda operator: operator.name,
)  # fmt: skip
@pytest.mark.parametrize("compiled_for", ["x86_64", "x86_64-avx2"])
def test_unusual_geometry(operator: qc.ConvolutionInteger, compiled_for: str) -> None:
    values = random_values(operator, np.random.default_rng(0))
    kernel = qc.compile(operator, compiled_for)
    try:
        output = kernel(**values)
    except qc.IncompatibleMachineError:
        return  # it compiles
    assert np.array_equal(output, evaluate(operator, values)["output"])
