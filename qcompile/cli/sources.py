"""What the commands are given: a model, a file of operators, or a bundle."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UnknownNameError

if TYPE_CHECKING:
    from ..runtime.kernel import Kernel
    from ..runtime.loader import Bundle

_SHOWN_NAMES = 20


def is_bundle(path: str) -> bool:
    """Whether a path is taken for a bundle: by its name, or by how it begins."""
    from ..bundle.container import MAGIC
    from ..frontends.requests import is_operator_file

    if is_operator_file(path):
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
