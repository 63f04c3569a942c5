"""The bundle's file: round trips, determinism, damage of every kind, other machines."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import struct
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import qcompile as qc
from qcompile.backends.cpu import features as cpu_features
from qcompile.bundle import container
from qcompile.bundle.manifest import parse
from qcompile.runtime.loader import load_bundle
from qcompile.system.files import check_writable

from ..support import small_constants, small_convolution, small_input


@pytest.fixture(scope="module")
def bundle() -> qc.Bundle:
    other = qc.Requantize(qc.Tensor((2, 3), "int32"))
    return qc.compile(
        {"first": small_convolution(), "second": other, "third": small_convolution()},
        ["x86_64"],
        {"first": small_constants(), "third": {**small_constants(), "output_scale": 0.2}},
    )


@pytest.fixture(scope="module")
def content(bundle: qc.Bundle) -> bytes:
    return bundle.to_bytes()


def rewritten(
    content: bytes, change: Callable[[dict[str, Any]], Any], version: int = container.FORMAT_VERSION
) -> bytes:
    """The bundle with a changed manifest and right checksums."""
    manifest, blobs, _ = container.unpack(content, "it")
    change(manifest)
    packed = bytearray(container.pack(manifest, blobs))
    struct.pack_into("<I", packed, 8, version)
    return bytes(packed)


def test_a_mapping_in_order(bundle: qc.Bundle) -> None:
    assert bundle.names == ["first", "second", "third"]
    assert [kernel.name for kernel in bundle] == bundle.names
    assert len(bundle) == 3
    assert "second" in bundle
    assert "fourth" not in bundle
    assert bundle.targets == ["x86_64"]
    with pytest.raises(qc.UnknownNameError, match="no kernel of that name"):
        bundle["fourth"]


def test_round_trip(bundle: qc.Bundle, tmp_path: Path) -> None:
    bundle.save(tmp_path / "all.qcb")
    loaded = qc.load(tmp_path / "all.qcb")
    assert isinstance(loaded, qc.Bundle)
    for name in ("first", "third"):
        assert np.array_equal(loaded[name](input=small_input()), bundle[name](input=small_input()))
    assert not np.array_equal(loaded["first"](input=small_input()), loaded["third"](input=small_input()))
    assert loaded["first"].operator == bundle["first"].operator
    assert loaded.to_bytes() == bundle.to_bytes()


def test_the_file_may_change_after_it_was_loaded(bundle: qc.Bundle, tmp_path: Path) -> None:
    bundle.save(tmp_path / "all.qcb")
    loaded: Any = qc.load(tmp_path / "all.qcb")
    (tmp_path / "all.qcb").write_bytes(b"")
    assert np.array_equal(loaded["first"](input=small_input()), bundle["first"](input=small_input()))


def test_one_kernel_of_several(bundle: qc.Bundle, tmp_path: Path) -> None:
    bundle["third"].save(tmp_path / "third.qcb")
    kernel = qc.load(tmp_path / "third.qcb")
    assert isinstance(kernel, qc.Kernel)
    assert kernel.name == "third"
    assert np.array_equal(kernel(input=small_input()), bundle["third"](input=small_input()))


def test_a_sequence_of_one_is_a_bundle(tmp_path: Path) -> None:
    bundle = qc.compile([small_convolution()], "x86_64")
    bundle.save(tmp_path / "one.qcb")
    assert isinstance(qc.load(tmp_path / "one.qcb"), qc.Bundle)


def test_equal_input_gives_equal_bytes(content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QCOMPILE_CACHE", "off")
    again = qc.compile(
        {
            "first": small_convolution(),
            "second": qc.Requantize(qc.Tensor((2, 3), "int32")),
            "third": small_convolution(),
        },
        ["x86_64"],
        {"first": small_constants(), "third": {**small_constants(), "output_scale": 0.2}},
    )
    assert hashlib.sha256(again.to_bytes()).digest() == hashlib.sha256(content).digest()


def test_equal_operators_get_names_of_their_own() -> None:
    bundle = qc.compile([small_convolution(), small_convolution()], "x86_64", [small_constants(), None])
    name = small_convolution().name
    assert bundle.names == [name, f"{name}.2"]


def test_no_path_of_this_machine_is_in_a_bundle(content: bytes) -> None:
    for text in (os.getcwd(), str(Path.home()), "/tmp/"):
        assert text.encode() not in content


@pytest.mark.parametrize("size", [0, 1, 7, 8, 40, 63, 64, 65, 1000])
def test_truncated(content: bytes, tmp_path: Path, size: int) -> None:
    path = tmp_path / "short.qcb"
    path.write_bytes(content[:size])
    with pytest.raises(qc.BundleError, match="is empty" if size == 0 else "is damaged"):
        qc.load(path)


def test_truncated_at_the_end_or_extended(content: bytes) -> None:
    for damaged in (content[:-1], content + b"\0"):
        with pytest.raises(qc.BundleError, match="bytes and should have"):
            qc.Bundle(damaged)


def test_every_flipped_byte_is_noticed(content: bytes) -> None:
    rng = np.random.default_rng(0)
    positions = {*range(80), *rng.integers(0, len(content), 400).tolist(), len(content) - 1}
    for position in sorted(positions):
        damaged = bytearray(content)
        damaged[position] ^= 1 << int(rng.integers(8))
        with pytest.raises(qc.BundleError):
            qc.Bundle(bytes(damaged))


def test_bytes_between_the_blobs_are_checked(content: bytes) -> None:
    size = struct.unpack_from("<Q", content, 16)[0]
    damaged = bytearray(content)
    damaged[64 + size] = 1  # the manifest ends here, and the first blob begins at a multiple of 64
    assert (64 + size) % 64 != 0
    with pytest.raises(qc.BundleError, match="between the blobs"):
        qc.Bundle(bytes(damaged))


def test_a_foreign_file(tmp_path: Path) -> None:
    path = tmp_path / "foreign.qcb"
    path.write_bytes(b"PK\3\4 this is something else entirely" * 10)
    with pytest.raises(qc.BundleError, match="is not a qcompile bundle"):
        qc.load(path)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(qc.BundleError, match="cannot be read: No such file"):
        qc.load(tmp_path / "missing.qcb")
    with pytest.raises(qc.BundleError, match="cannot be read: Is a directory"):
        qc.load(tmp_path)
    with pytest.raises(qc.BundleError, match="cannot be read: embedded null"):
        qc.load("zero\0character")


def test_a_newer_version(content: bytes) -> None:
    with pytest.raises(qc.BundleError, match=r"newer format .*\n.*version 3\n.*version 2\n.*update qcompile"):
        qc.Bundle(rewritten(content, lambda manifest: None, version=3))


def set_field(path: list[Any], value: Any) -> Callable[[dict[str, Any]], None]:
    def change(manifest: dict[str, Any]) -> None:
        place: Any = manifest
        for step in path[:-1]:
            place = place[step]
        if value is DELETE:
            del place[path[-1]]
        else:
            place[path[-1]] = value

    return change


DELETE = object()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["kernels"], {}),
        (["kernels"], DELETE),
        (["kernels", 0, "name"], 7),
        (["kernels", 0, "name"], "x" * 5000),
        (["kernels", 1, "name"], "first"),
        (["kernels", 0, "aliases"], ["second"]),
        (["kernels", 0, "operator"], {"operator": "os.system"}),
        (["kernels", 0, "operator", "strides"], [0, 0]),
        (["kernels", 0, "operator", "input", "shape"], [10**9] * 4),
        (["kernels", 0, "variants"], []),
        (["kernels", 0, "variants", 0, "library"], 5),
        (["kernels", 0, "variants", 0, "library"], -1),
        (["kernels", 0, "variants", 0, "library"], True),
        (["kernels", 0, "variants", 0, "index"], -1),
        (["kernels", 0, "variants", 0, "knobs"], {"tile": "4"}),
        (["kernels", 0, "variants", 0, "refused"], [["one"]]),
        (["kernels", 0, "variants", 0, "workspace_bytes"], 1.5),
        (["kernels", 0, "constants", "filter", "shape"], [1]),
        (["kernels", 0, "constants", "filter", "dtype"], "object"),
        (["kernels", 0, "constants", "filter", "blob"], 10**6),
        (["kernels", 0, "constants", "filter", "blob"], 0),
        (["kernels", 0, "constants", "nothing"], {"blob": 0, "dtype": "int8", "shape": []}),
        (["libraries"], [{}]),
        (["libraries", 0, "needs"], "avx2"),
        (["libraries", 0, "needs"], {}),
        (["libraries", 0, "needs", "features"], "avx2"),
        (["libraries", 0, "needs", "features"], ["x"] * 257),
        (["libraries", 0, "needs", "architecture"], 7),
        (["libraries", 0, "needs", "more"], 7),
        (["libraries", 0, "kind"], 7),
        (["libraries", 0, "format"], DELETE),
        (["single"], True),
        (["requantize"], "tflite"),
        (["producer"], []),
    ],
)
def test_wrong_manifests(content: bytes, path: list[Any], value: Any) -> None:
    with pytest.raises(qc.BundleError, match="has an invalid manifest"):
        qc.Bundle(rewritten(content, set_field(path, value)))


def test_a_kernel_that_its_library_lacks(content: bytes) -> None:
    bundle = qc.Bundle(rewritten(content, set_field(["kernels", 0, "variants", 0, "index"], 9)))
    with pytest.raises(qc.BundleError, match="lacks kernel 'first'"):
        bundle["first"](input=small_input())


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["kernels", 0, "variants", 0, "index"], 1),
        (["kernels", 1, "operator", "input", "shape"], [3, 2]),
        (["kernels", 1, "operator", "output_dtype"], "uint8"),
        (["kernels", 1, "operator", "output_zero_point"], None),
        (["kernels", 0, "constants", "bias"], DELETE),
    ],
)
def test_a_manifest_of_other_kernels_than_the_library(content: bytes, path: list[Any], value: Any) -> None:
    bundle = qc.Bundle(rewritten(content, set_field(path, value)))
    with pytest.raises(qc.BundleError, match="or has another one in its place"):
        bundle["first"](input=small_input(), bias=np.zeros(8, np.int32)) if "bias" in path else bundle["first"](
            input=small_input()
        )


def test_copies_and_pickles(bundle: qc.Bundle) -> None:
    for copy in (pickle.loads(pickle.dumps(bundle)), deepcopy(bundle)):
        assert copy.to_bytes() == bundle.to_bytes()
    kernel = pickle.loads(pickle.dumps(bundle["third"].on("x86_64")))
    assert kernel.name == "third"
    assert np.array_equal(kernel(input=small_input()), bundle["third"](input=small_input()))


def test_a_library_that_is_none(bundle: qc.Bundle) -> None:
    manifest = bundle.manifest.to_dictionary()
    blobs = [bundle._content.blob(number) for number in range(len(bundle._content._blobs))]
    broken = container.pack(manifest, [b"no library", *blobs[1:]])
    with pytest.raises(qc.BundleError, match="cannot be loaded"):
        qc.Bundle(broken)["first"](input=small_input())


def test_deeply_nested_json() -> None:
    text = b'{"blobs":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    header = struct.pack("<8sIIQQ32s", b"QCBUNDLE", 1, 64, len(text), 64 + len(text), hashlib.sha256(text).digest())
    with pytest.raises(qc.BundleError, match="is damaged"):
        qc.Bundle(header + text)


def test_random_json_manifests(content: bytes) -> None:
    """Whatever stands in a manifest, the answer is a BundleError or a bundle."""
    manifest, blobs, _ = container.unpack(content, "it")
    sizes = [len(blob) for blob in blobs]
    text = json.dumps(manifest)
    rng = np.random.default_rng(3)
    alphabet = '0123456789-.[]{}",:truefalsn'
    accepted = 0
    for _ in range(2000):
        characters = list(text)
        for _ in range(int(rng.integers(1, 4))):
            characters[int(rng.integers(len(text)))] = alphabet[int(rng.integers(len(alphabet)))]
        try:
            values = json.loads("".join(characters))
        except ValueError:
            continue
        try:
            parse(values, sizes, "it", container.FORMAT_VERSION)
            accepted += 1
        except qc.BundleError:
            pass
    assert accepted > 10


def test_a_bundle_for_another_cpu(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "foreign.qcb"
    path.write_bytes(rewritten(content, set_field(["libraries", 0, "needs", "architecture"], "riscv64")))
    with pytest.raises(qc.IncompatibleMachineError, match="architecture riscv64"):
        qc.load(path)
    kernel = load_bundle(path)["first"]  # it can be looked into
    assert kernel.variants[0].target == "x86_64"
    with pytest.raises(qc.IncompatibleMachineError, match="not compiled for this machine"):
        kernel(input=small_input())


def test_missing_cpu_features_are_named(content: bytes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    compiled = qc.compile([small_convolution()], ["x86_64-avx2"], [small_constants()])
    compiled.save(tmp_path / "avx2.qcb")
    monkeypatch.setattr(cpu_features, "features", lambda: frozenset({"sse2", "avx"}))
    with pytest.raises(qc.IncompatibleMachineError, match="x86_64-avx2 needs avx2, bmi1"):
        qc.load(tmp_path / "avx2.qcb")


def test_the_best_variant_that_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = qc.compile([small_convolution()], ["x86_64", "x86_64-avx2"], [small_constants()])
    content = compiled.to_bytes()
    expected = qc.reference(small_convolution(), input=small_input(), **small_constants())
    for features, target in ((cpu_features.features(), None), (frozenset({"sse2"}), "x86_64")):
        monkeypatch.setattr(cpu_features, "features", lambda features=features: features)
        kernel = next(iter(qc.Bundle(content)))
        assert [variant.target for variant in kernel.variants] == ["x86_64-avx2", "x86_64"]
        assert target is None or kernel.variant.target == target
        assert np.array_equal(kernel(input=small_input()), expected)


def test_each_variant_can_be_chosen_and_is_verified() -> None:
    compiled = qc.compile(small_convolution(), ["x86_64", "x86_64-avx2"], small_constants())
    expected = qc.reference(small_convolution(), input=small_input(), **small_constants())
    for target in compiled.runnable_targets:
        assert compiled.on(target).variant.target == target
        assert np.array_equal(compiled.on(target)(input=small_input()), expected)
    assert [result.target for result in qc.verify(compiled)] == compiled.runnable_targets
    with pytest.raises(qc.UnknownNameError, match="not compiled for that target"):
        compiled.on("aarch64")
    with pytest.raises(qc.InvalidTensorError, match="needs a round"):
        qc.verify(compiled, rounds=0)


def test_paths_that_cannot_be_written(bundle: qc.Bundle, tmp_path: Path) -> None:
    for path in (tmp_path / "missing" / "it.qcb", tmp_path, str(tmp_path / "zero\0character")):
        with pytest.raises(qc.FileWriteError, match="cannot be written"):
            bundle.save(path)
    assert list(tmp_path.iterdir()) == []


def test_only_regular_files_are_replaced(bundle: qc.Bundle, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(qc.FileWriteError, match="not a regular file"):
        bundle.save(tmp_path / "pipe")
    (tmp_path / "real.qcb").write_bytes(b"old")
    (tmp_path / "real.qcb").chmod(0o600)
    (tmp_path / "link.qcb").symlink_to("real.qcb")
    bundle.save(tmp_path / "link.qcb")
    assert (tmp_path / "link.qcb").is_symlink()
    assert (tmp_path / "real.qcb").read_bytes() == bundle.to_bytes()
    assert (tmp_path / "real.qcb").stat().st_mode & 0o777 == 0o600
    with pytest.raises(qc.FileWriteError, match="an input of the same command"):
        check_writable(tmp_path / "link.qcb", sources=[tmp_path / "real.qcb"])


def test_a_failed_write_leaves_the_old_file(bundle: qc.Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "it.qcb"
    path.write_bytes(b"old")

    def full_disk(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full_disk)
    with pytest.raises(qc.FileWriteError, match="No space left on device"):
        bundle.save(path)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_first_version_of_the_format_is_read(content: bytes, bundle: qc.Bundle) -> None:
    """Its libraries were for CPUs alone, and said so in fields of their own."""

    def older(manifest: dict[str, Any]) -> None:
        for library in manifest["libraries"]:
            needs = library.pop("needs")
            del library["kind"], library["format"]
            library |= {"architecture": needs["architecture"], "required_features": needs["features"]}

    loaded = qc.Bundle(rewritten(content, older, version=1))
    (library,) = loaded.manifest.libraries
    assert (library.kind, library.format) == ("cpu", "elf")
    assert library.needs == {**bundle.manifest.libraries[0].needs, "emulated_cpu": ""}
    assert np.array_equal(loaded["first"](input=small_input()), bundle["first"](input=small_input()))


def test_a_library_of_an_unknown_kind_does_not_run(content: bytes) -> None:
    loaded = qc.Bundle(rewritten(content, set_field(["libraries", 0, "kind"], "abacus")))
    with pytest.raises(qc.IncompatibleMachineError, match="a version of qcompile that knows hardware of kind abacus"):
        loaded["first"](input=small_input())
