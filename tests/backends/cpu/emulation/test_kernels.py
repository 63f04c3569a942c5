"""Compiled kernels in emulation, bit for bit, and on CPUs that lack their instructions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import qcompile as qc
from qcompile.backends import targets
from qcompile.backends.cpu.emulation.bochs import client
from qcompile.backends.cpu.emulation.bochs.models import MODELS
from qcompile.backends.interface import RunOptions
from qcompile.bundle import container
from qcompile.reference import evaluate
from qcompile.reference.random_values import random_values

from .support import needs_emulator, open_tiny, run_tiny

pytestmark = needs_emulator

T = qc.Tensor
OPERATORS = {
    "nchw": qc.QuantizedLinearConvolution(
        T((1, 5, 9, 7), "uint8"), T((11, 5, 3, 3), "int8"), "uint8", bias=True, start_padding=(1, 1),
        end_padding=(1, 1), filter_scale="per_channel",
    ),
    "nhwc": qc.QuantizedLinearConvolution(
        T((2, 8, 7, 16), "int8", "NHWC"), T((24, 3, 3, 16), "int8", "NHWC"), "int8", strides=(2, 2)
    ),
    "depthwise": qc.QuantizedLinearConvolution(
        T((1, 10, 9, 19), "uint8", "NHWC"), T((19, 3, 3, 1), "int8", "NHWC"), "uint8", group_count=19,
        start_padding=(1, 1), end_padding=(1, 1),
    ),
    "product": qc.QuantizedLinearMatrixMultiply(
        T((13, 70), "uint8"), T((70, 37), "int8"), "int8", bias=True, b_scale="per_column"
    ),
    "row": qc.MatrixMultiplyInteger(T((1, 100), "uint8"), T((100, 33), "int8")),
    "requantize": qc.Requantize(T((3, 50), "int32"), input_scale="per_axis"),
    "quantize": qc.QuantizeLinear(T((7, 31), "float32"), "int8"),
    "dequantize": qc.DequantizeLinear(T((7, 31), "uint8")),
    "dynamic": qc.DynamicQuantizeLinear(T((5, 33), "float32")),
    "v2": qc.QuantizeV2(T((90,), "float32")),
}  # fmt: skip
TARGETS = [entry.name for entry in targets.load_all() if entry.facts.architecture == "x86_64"]


@pytest.fixture(scope="module")
def bundle() -> qc.Bundle:
    values = random_values(OPERATORS["nhwc"], np.random.default_rng(9))
    constants = {name: value for name, value in values.items() if name != "input"}
    compiled: qc.Bundle = qc.compile(OPERATORS, TARGETS, {"nhwc": constants})
    return compiled.emulated(always=True)


@pytest.mark.parametrize("emulated", TARGETS)
@pytest.mark.parametrize("name", OPERATORS)
def test_exact(bundle: qc.Bundle, name: str, emulated: str) -> None:
    kernel = bundle[name].on(emulated)
    assert kernel.variant.emulated_cpu == targets.load(emulated).facts.emulated_cpu
    (result,) = qc.verify(kernel)
    assert result.is_exact, result.detail
    assert result.emulated_cpu == kernel.variant.emulated_cpu
    assert kernel.instructions > 0


def test_inputs_that_are_left_out(bundle: qc.Bundle) -> None:
    kernel = bundle["row"]
    values = random_values(kernel.operator, np.random.default_rng(1))
    given = {"a": values["a"], "b": values["b"]}
    assert np.array_equal(kernel(**given), evaluate(kernel.operator, given)["output"])


def on_another_cpu(content: bytes, cpu: str) -> qc.Kernel:
    """The first kernel of a bundle, whose manifest names that CPU."""
    manifest, blobs, _ = container.unpack(content, "it")
    for library in manifest["libraries"]:
        library["needs"]["emulated_cpu"] = cpu
    return next(iter(qc.Bundle(container.pack(manifest, blobs), emulate="always")))


@pytest.mark.parametrize("cpu", MODELS)
def test_every_model_runs_plain_code(cpu: str) -> None:
    operator = OPERATORS["requantize"]
    kernel = on_another_cpu(qc.compile([operator], "x86_64").to_bytes(), cpu)
    (result,) = qc.verify(kernel, rounds=1)
    assert result.is_exact
    if cpu not in ("haswell", "clawhammer"):
        client._emulators[cpu].stop()


def test_an_instruction_that_the_cpu_lacks() -> None:
    content = qc.compile([OPERATORS["requantize"]], "x86_64-avx2").to_bytes()
    kernel = on_another_cpu(content, "clawhammer")
    values = random_values(kernel.operator, np.random.default_rng(1))
    for _ in range(2):
        with pytest.raises(
            qc.EmulationError, match=r"executes an instruction that the emulated CPU clawhammer"
        ) as caught:
            kernel(**values)
        assert "at offset 0x" in str(caught.value.given)
        assert str(caught.value.given).startswith(("c4 ", "c5 ")), "an instruction of AVX begins so"
    # the process lives on
    right = evaluate(kernel.operator, values)["output"]
    plain = on_another_cpu(qc.compile([kernel.operator], "x86_64").to_bytes(), "clawhammer")
    assert np.array_equal(plain(**values), right)
    assert np.array_equal(on_another_cpu(content, "haswell")(**values), right)


def test_a_failing_kernel() -> None:
    """What it says reaches the caller, and the next call works."""
    operator = qc.MatrixMultiplyInteger(T((3, 8), "uint8"), T((8, 5), "int8"))
    kernel = qc.compile(operator, "x86_64").emulated(always=True)
    output = np.zeros((3, 5), np.int32)
    with pytest.raises(qc.KernelError, match="The kernel failed: the address of a tensor is NULL"):
        kernel._library.run(0, [None, None, None, None], [output], RunOptions(1))
    with pytest.raises(qc.KernelError, match="The kernel failed: there is no kernel of that index"):
        kernel._library.run(1, [], [], RunOptions(1))
    assert qc.verify(kernel)[0].is_exact


def test_every_target_names_a_model() -> None:
    for entry in targets.load_all():
        if entry.facts.architecture == "x86_64":
            assert entry.facts.emulated_cpu in MODELS, entry.name


#: what multiplies 4 bytes and adds, in AVX-512 VNNI and in AVX-VNNI: models, and code that leaves the sum in `sum`
DOT_PRODUCTS = {
    "avx512vnni": (
        ("icelake", "tigerlake", "sapphirerapids"),
        ("skylake_x", "arrowlake", "haswell"),
        "vpxord %%zmm0, %%zmm0, %%zmm0; vpbroadcastd (%1), %%zmm1; vpbroadcastd (%1), %%zmm2;"
        ".byte 0x62, 0xf2, 0x75, 0x48, 0x50, 0xc2; vmovd %%xmm0, %0",
    ),
    "avxvnni": (
        ("arrowlake", "sapphirerapids"),
        ("icelake", "haswell"),
        "vpxor %%ymm0, %%ymm0, %%ymm0; vpbroadcastd (%1), %%ymm1; vpbroadcastd (%1), %%ymm2;"
        ".byte 0xc4, 0xe2, 0x75, 0x50, 0xc2; vmovd %%xmm0, %0",
    ),
}


@pytest.mark.parametrize("feature", DOT_PRODUCTS)
def test_dot_products(tmp_path: Path, feature: str) -> None:
    able, unable, code = DOT_PRODUCTS[feature]
    body = f'uint32_t sum; __asm__ volatile("{code}" : "=r"(sum) : "r"(input) : "memory"); output[0] = sum;'
    for cpu in (*able, *unable):
        library = open_tiny(tmp_path, body, cpu=cpu)
        if cpu in able:
            assert run_tiny(library)[0] == 1 + 4 + 9 + 16
        else:
            with pytest.raises(qc.EmulationError, match=f"the emulated CPU {cpu} does not have"):
                run_tiny(library)
        if cpu != "haswell":
            client._emulators[cpu].stop()


@pytest.mark.parametrize(("index", "output"), [(1, 2), (1, 18), (17, 2), (17, 18), (31, 16)])
@pytest.mark.parametrize("width", ["x", "y", "z"])
def test_gathers(tmp_path: Path, width: str, index: int, output: int) -> None:
    """With an index among the upper registers, which Bochs by itself refuses."""
    code = (
        f"vpmovzxbd (%0), %%{width}mm{index}; kxnorw %%k1, %%k1, %%k1;"
        f"vpgatherdd 4(%1,%%{width}mm{index},4), %%{width}mm{output}%{{%%k1%}}; vpmovdb %%{width}mm{output}, %2"
    )
    body = (
        "static uint32_t table[8]; static uint8_t places[16] = {5, 0, 2, 1}, found[16];"
        "for (int i = 0; i < 8; i++) table[i] = 10 * i;"
        f'__asm__ volatile("{code}" : : "r"(places), "r"(table), "m"(found) : "memory");'
        "for (int i = 0; i < 5; i++) output[i] = found[i];"
    )
    library = open_tiny(tmp_path, body, cpu="skylake_x")
    assert run_tiny(library)[:4] == bytes([60, 10, 30, 20])


def test_a_gather_into_its_index(tmp_path: Path) -> None:
    """It is refused by real processors too."""
    body = (
        "static uint32_t table[8];"
        '__asm__ volatile("vpxord %%zmm17, %%zmm17, %%zmm17; kxnorw %%k1, %%k1, %%k1;'
        'vpgatherdd (%0,%%zmm17,4), %%zmm17%{%%k1%}" : : "r"(table) : "memory");'
    )
    with pytest.raises(qc.EmulationError, match="does not have"):
        run_tiny(open_tiny(tmp_path, body, cpu="skylake_x"))


AVX512_TARGET = """
name = "avx512"
description = "a processor that the machine need not be"
kind = "cpu"
rules = ["cpu_channelwise", "cpu_widen16", "cpu_plain"]

[cpu]
architecture = "x86_64"
required_features = ["avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "lzcnt", "movbe", "avx512f", "avx512bw", "avx512cd",
                     "avx512dq", "avx512vl"]
vector_bits = 512
instructions = ["pmaddwd_512"]
emulated_cpu = "skylake_x"

[target]
kind = "llvm"
mtriple = "x86_64-unknown-linux-gnu"
mcpu = "skylake-avx512"
"""


def test_a_target_of_the_user(tmp_path: Path) -> None:
    path = tmp_path / "avx512.toml"
    path.write_text(AVX512_TARGET, encoding="utf-8")
    names = ("nhwc", "product", "requantize", "dynamic")
    bundle = qc.compile({name: OPERATORS[name] for name in names}, str(path))
    for result in qc.verify(bundle, rounds=1, emulate="always"):
        assert result.emulated_cpu == "skylake_x"
        assert result.is_exact, result.detail
    client._emulators["skylake_x"].stop()
