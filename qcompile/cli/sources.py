"""What the commands are given: a model, a file of operators, or a bundle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UnknownNameError

if TYPE_CHECKING:
    from ..frontends.onnx import SkippedNode
    from ..pipeline import Request
    from ..runtime.kernel import Kernel
    from ..runtime.loader import Bundle

_SHOWN_NAMES = 20


@dataclass(frozen=True)
class Source:
    """The content of a model or of a file of operators.

    Args:
        requests: the kernels to compile.
        taken_over: number of nodes of the model that the kernels replace; None for a file of operators.
        skipped: the other nodes.
    """

    requests: list[Request]
    taken_over: int | None
    skipped: tuple[SkippedNode, ...]


def read_source(path: str, input_shapes: Mapping[str, Sequence[int]], *, may_be_empty: bool = False) -> Source:
    """Reads a model or a file of operators.

    Args:
        path: the file.
        input_shapes: for a model.
        may_be_empty: whether a model without a kernel is accepted.
    """
    from .. import pipeline

    if is_toml(path):
        return Source(pipeline.requests_of_file(path, input_shapes), None, ())
    from ..frontends.onnx import import_model

    model = import_model(path, input_shapes)
    requests = [] if may_be_empty and not model.nodes else pipeline.requests_of_nodes(model.nodes, path)
    return Source(requests, len({name for node in model.nodes for name in node.nodes}), model.skipped)


def is_toml(path: str) -> bool:
    """Whether a path is taken for a file of operators."""
    return Path(path).suffix.lower() == ".toml"


def is_bundle(path: str) -> bool:
    """Whether a path is taken for a bundle: by its name, or by how it begins."""
    from ..runtime.container import MAGIC

    if is_toml(path):
        return False
    try:
        if Path(path).is_file():
            with Path(path).open("rb") as stream:
                if stream.read(len(MAGIC)) == MAGIC:
                    return True
    except OSError:
        pass  # whoever reads it next says what is wrong
    return Path(path).suffix.lower() == ".qcb"


def only_kernel(bundle: Bundle, name: str | None) -> Kernel:
    """The kernel of that name; without one, the only kernel of the bundle.

    Raises:
        UnknownNameError: there is none, or there are several.
    """
    return bundle[one_of(bundle.names, "The bundle") if name is None else name]


def one_of(names: Sequence[str], what: str) -> str:
    """The only name.

    Raises:
        UnknownNameError: there are several, or none.
    """
    if len(names) != 1:
        shown = ", ".join(names[:_SHOWN_NAMES]) + (", ..." if len(names) > _SHOWN_NAMES else "")
        raise UnknownNameError(
            f"{what} has {len(names)} kernels: which one?", accepted=shown, remedy="choose one with --kernel"
        )
    return names[0]
