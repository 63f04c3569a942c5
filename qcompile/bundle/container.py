"""The file format of a bundle: a header, a JSON manifest and blobs, all under checksums. See docs/bundle.md.

    0   8 bytes   magic "QCBUNDLE"
    8   u32       version of the format
    12  u32       bytes of the header: 64
    16  u64       bytes of the manifest
    24  u64       bytes of the file
    32  32 bytes  SHA-256 of the manifest
    64  manifest  UTF-8 JSON; its "blobs" list [offset, bytes, SHA-256] of each blob
    ..  blobs     each at a multiple of 64, zeros between them

Numbers are little-endian. Every byte of the file is covered: by a checksum, or because it must be zero.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..errors import BundleError

MAGIC = b"QCBUNDLE"
#: what is written; earlier versions, whose manifests differ, are read too
FORMAT_VERSION = 2
MAXIMUM_MANIFEST_BYTES = 64 << 20
MAXIMUM_BLOBS = 100_000
_HEADER = struct.Struct("<8sIIQQ32s")
_ALIGNMENT = 64
_REMEDY = "copy or compile the bundle again"

Buffer = bytes | memoryview


def pack(manifest: dict[str, Any], blobs: Sequence[Buffer]) -> bytes:
    """The file of a manifest (without its "blobs") and at least one blob. Equal input gives equal bytes."""
    hashes = [hashlib.sha256(blob).hexdigest() for blob in blobs]
    # the offsets stand in the manifest, whose length they depend on: relative to the end of the manifest
    position = 0
    table: list[tuple[int, int, str]] = []
    for blob, checksum in zip(blobs, hashes, strict=True):
        table.append((position, len(blob), checksum))
        position = _aligned(position + len(blob))
    text = json.dumps({**manifest, "blobs": table}, sort_keys=True, separators=(",", ":")).encode()
    start = _aligned(_HEADER.size + len(text))
    length = start + table[-1][0] + table[-1][1]
    header = _HEADER.pack(MAGIC, FORMAT_VERSION, _HEADER.size, len(text), length, hashlib.sha256(text).digest())
    content = bytearray(length)
    content[: len(header)] = header
    content[len(header) : len(header) + len(text)] = text
    for blob, (offset, size, _) in zip(blobs, table, strict=True):
        content[start + offset : start + offset + size] = blob
    return bytes(content)


def read_file(path: str | os.PathLike[str]) -> bytes:
    """The content of a bundle's file. It is not mapped: what was checked cannot change afterwards.

    Raises:
        BundleError: it does not exist, is empty, a folder or not readable.
    """
    try:
        content = Path(path).read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise BundleError(f"The bundle {os.fspath(path)} cannot be read: {reason}.") from error
    if not content:
        raise BundleError(f"The bundle {path} is empty.", remedy=_REMEDY)
    return content


def unpack(content: Buffer, origin: str) -> tuple[dict[str, Any], list[memoryview], int]:
    """The manifest, the blobs and the format's version of a file, every byte checked.

    Args:
        content: of the file.
        origin: the file, for messages.

    Raises:
        BundleError: it is not a bundle, of a newer format, truncated or damaged.
    """
    view = memoryview(content)
    if bytes(view[: len(MAGIC)]) != MAGIC[: len(view)]:
        raise BundleError(
            f"{origin} is not a qcompile bundle.",
            given=f"it starts with {bytes(view[:8])!r}",
            accepted=f"{MAGIC!r}",
            remedy="models are compiled first: qcompile compile MODEL -o OUT.qcb",
        )
    if len(view) < _HEADER.size:
        raise _damaged(origin, f"it ends after {len(view)} bytes, inside the header")
    _, version, header_size, manifest_size, length, checksum = _HEADER.unpack(view[: _HEADER.size])
    if version > FORMAT_VERSION:
        raise BundleError(
            f"{origin} has a newer format than this qcompile reads.",
            given=f"version {version}",
            accepted=f"up to version {FORMAT_VERSION}",
            remedy="update qcompile, or compile the bundle with this version",
        )
    if version < 1 or header_size != _HEADER.size or manifest_size > MAXIMUM_MANIFEST_BYTES:
        raise _damaged(origin, "the header is impossible")
    if length != len(view):
        raise _damaged(origin, f"it has {len(view)} bytes and should have {length}")
    text = bytes(view[_HEADER.size : _HEADER.size + manifest_size])
    if hashlib.sha256(text).digest() != checksum:
        raise _damaged(origin, "the manifest does not match its checksum")
    try:
        manifest = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _damaged(origin, "the manifest is not JSON") from error
    if not isinstance(manifest, dict):
        raise _damaged(origin, "the manifest is not an object")
    return manifest, _blobs(view, manifest.pop("blobs", None), _HEADER.size + manifest_size, origin), version


def _blobs(view: memoryview, table: Any, end: int, origin: str) -> list[memoryview]:
    """The blobs behind the manifest, which ends at `end`: in order, and with nothing but zeros between them."""
    if not isinstance(table, list) or not 0 < len(table) <= MAXIMUM_BLOBS:
        raise _damaged(origin, "the table of blobs is missing, empty or too long")
    blobs: list[memoryview] = []
    start = _aligned(end)
    for row in table:
        if not (
            isinstance(row, list)
            and len(row) == 3
            and all(type(number) is int and number >= 0 for number in row[:2])
            and isinstance(row[2], str)
        ):
            raise _damaged(origin, "the table of blobs is invalid")
        first = start + row[0]
        if first != _aligned(end) or first + row[1] > len(view):
            raise _damaged(origin, "a blob lies outside the file")
        blob = view[first : first + row[1]]
        if hashlib.sha256(blob).hexdigest() != row[2]:
            raise _damaged(origin, f"blob {len(blobs)} does not match its checksum")
        if any(view[end:first]):
            raise _damaged(origin, "bytes between the blobs are not zero")
        blobs.append(blob)
        end = first + row[1]
    if end != len(view):
        raise _damaged(origin, "there are bytes after the last blob")
    return blobs


def _aligned(position: int) -> int:
    return -(-position // _ALIGNMENT) * _ALIGNMENT


def _damaged(origin: str, detail: str) -> BundleError:
    return BundleError(f"{origin} is damaged: {detail}.", remedy=_REMEDY)
