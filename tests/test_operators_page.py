"""docs/operators.md is what the docstrings of the operators say.

`python -m tests.test_operators_page` writes the page.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from typing import Any

from qcompile import catalogue
from qcompile.spec import Operator, naming

from .test_readme import ROOT, table_of

PAGE = ROOT / "docs" / "operators.md"
INTRODUCTION = """# Operators

Fields and tensors of the operators, written by `python -m tests.test_operators_page` from their docstrings.

An operator is described by its fields. Fields that are tensors are `qc.Tensor(shape, dtype, layout="NCHW")` in Python
and `{shape = [...], dtype = "...", layout = "..."}` in a TOML file. With `layout="NHWC"` channels are last, and the
filter is [O, KH, KW, C / group_count]: input and filter both say so.

The tensors are what a kernel computes with. Each is a constant, given to `qc.compile(constants=...)` by its name, or an
argument of every call. Parameters are scalars ("per_tensor") or vectors; None, in TOML "none", says that a tensor does
not exist. RHE rounds half to even; see [numerics.md](numerics.md).

"""


def page() -> str:
    """The page as it should be."""
    sections = (_section(entry.operator, entry.examples[0]) for entry in catalogue.CATALOGUE)
    return "\n".join([INTRODUCTION, *sections, _names()])


def _names() -> str:
    """The grammar of names, from the module that reads and writes them."""
    paragraphs = (naming.__doc__ or "").strip().split("\n\n")
    grammar = inspect.cleandoc(paragraphs[1])
    words = "Every operator has a name, which describes it completely. `tune` takes it, and `explain` prints it."
    return "\n".join(["## Names", "", words, "", "```text", grammar, "```", "", paragraphs[2], ""])


def _section(operator: type[Operator], example: Operator) -> str:
    text, _, rest = (inspect.getdoc(operator) or "").partition("\nArgs:\n")
    arguments = rest.partition("\nRaises:\n")[0]
    fields = re.findall(r"^    (\w+(?:, \w+)*): (.*(?:\n        .*)*)", arguments, re.MULTILINE)
    rows = [[f"`{name.replace(', ', '`, `')}`", " ".join(words.split()).replace("|", "\\|")] for name, words in fields]
    lines = [f"## {operator.__name__}", "", text.strip(), ""]
    if rows:
        lines += [table_of(["field", "meaning"], rows), ""]
    tensors = ", ".join(f"`{tensor.name}`" for tensor in _everything(operator, example).tensors)
    outputs = ", ".join(f"`{tensor.name}`" for tensor in example.outputs)
    lines += [f"Tensors: {tensors}. Outputs: {outputs}. A name: `{example.name}`.", ""]
    return "\n".join(lines)


def _everything(operator: type[Operator], example: Operator) -> Operator:
    """The example with all tensors that the operator may have."""
    fields = {name: getattr(example, name) for name in _field_names(operator)}
    for name in fields:
        if name == "bias":
            fields[name] = True
        elif name.endswith("zero_point") and fields[name] is None:
            fields[name] = "per_tensor"
    return operator(**fields)


def _field_names(operator: Any) -> list[str]:
    return [field.name for field in dataclasses.fields(operator) if field.init]


def test_the_page_is_that_of_the_docstrings() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m tests.test_operators_page"


def test_every_field_is_described() -> None:
    text = page()
    for entry in catalogue.CATALOGUE:
        section = text.partition(f"## {entry.operator.__name__}\n")[2].partition("\n## ")[0]
        fields = _field_names(entry.operator)
        if "The fields are those" not in section:
            assert all(f"`{name}`" in section for name in fields), (entry.operator, fields)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
