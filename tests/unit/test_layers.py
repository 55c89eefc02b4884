"""The architecture can be read from the imports.

A layer is a module or package directly under `spillway`. It imports only itself and the layers that
stand before it in `ORDER`; imports under TYPE_CHECKING or inside functions count the same. The root
module `spillway` shows the public names of the layers up to `testing`, and stands right after it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "spillway"
ROOT = "spillway"

ORDER = [
    "version",
    "errors",
    "doctor",
    "ids",
    "duration",
    "settings",
    "faults",
    "codec",
    "kernels",
    "formats",
    "routing",
    "metrics",
    "state",
    "plan",
    "operators",
    "slot",
    "policies",
    "protocols",
    "coordinator",
    "checkpoint",
    "inspect",
    "spark",
    "dashboard",
    "testing",
    ROOT,
    "cli",
]
#: Layers whose own packages have an order.
INSIDE = {"state": ["runs", "layout", "manifest", "slot"]}
MAY_IMPORT_PYSPARK = {"spark", "testing", "cli"}


def broken_layers(source: Path) -> list[str]:
    """Every import under `source` that breaks a rule, as `file:line: what is wrong`."""
    found = []
    for path in sorted(source.rglob("*.py")):
        module = path.relative_to(source)
        importer = module.with_suffix("").parts[0].replace("__init__", ROOT)
        if importer not in ORDER:
            found.append(f"{module}: layer {importer!r} has no place in ORDER")
            continue
        for line, imported in imports_of(path, source):
            wrong = broken_rule(importer, imported) or broken_inside(module.parts, imported)
            if wrong:
                found.append(f"{module}:{line}: {wrong}")
    return found


def broken_inside(importer: tuple[str, ...], imported: list[str]) -> str | None:
    """What is wrong with an import within a layer whose packages have an order, if anything."""
    layer, order = importer[0], INSIDE.get(importer[0], [])
    inside = imported[:2] == [ROOT, layer] and len(imported) > 2 and imported[2] in order
    if not inside or importer[1] not in order:
        return None
    if order.index(imported[2]) > order.index(importer[1]):
        return f"{layer}/{importer[1]} may not import {layer}/{imported[2]}, which stands after it"
    return None


def broken_rule(importer: str, imported: list[str]) -> str | None:
    """What is wrong with `importer` importing that dotted name, if anything."""
    if imported[0] == "pyspark" and importer not in MAY_IMPORT_PYSPARK:
        return f"{importer} may not import pyspark"
    if imported[0] == "spillway_lab":
        return "the product may not import the laboratory"
    if imported[0] != ROOT:
        return None
    layer = layer_of(imported)
    if ORDER.index(layer) > ORDER.index(importer):
        return f"{importer} may not import {layer}, which stands after it"
    return None


def layer_of(name: list[str]) -> str:
    """The layer a dotted name is in; what is no layer, such as `spillway.join`, is the root's."""
    return name[1] if len(name) > 1 and name[1] in ORDER else ROOT


def imports_of(path: Path, source: Path) -> Iterator[tuple[int, list[str]]]:
    """The line and the absolute dotted name of everything a module imports."""
    # The package of a module, and of an __init__, is the folder it is in.
    package = [ROOT, *path.parent.relative_to(source).parts]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name.split(".")
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            base = base + (node.module.split(".") if node.module else [])
            for alias in node.names:
                yield node.lineno, [*base, alias.name]


@pytest.fixture
def tree(tmp_path: Path) -> Callable[[str, str], list[str]]:
    """Writes one module into an empty source tree and gives what is broken in it."""

    def check(module: str, text: str) -> list[str]:
        path = tmp_path / module
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return broken_layers(tmp_path)

    return check


def test_no_import_breaks_a_layer():
    assert broken_layers(SOURCE) == []


def test_the_source_is_really_read():
    assert list(imports_of(SOURCE / "doctor.py", SOURCE))


@pytest.mark.parametrize(
    "text",
    [
        "import spillway.spark.api.query",
        "from spillway.spark import query",
        "from spillway import spark",
        "from ..spark.query import Query",
        "from .. import spark",
        "def later():\n    from spillway.spark import query",
        "if TYPE_CHECKING:\n    from spillway.spark import query",
    ],
)
def test_import_of_a_later_layer_is_found_in_every_form(tree, text):
    line = text.count("\n") + 1
    wrong = f"state/runs/run.py:{line}: state may not import spark, which stands after it"
    assert tree("state/runs/run.py", text) == [wrong]


@pytest.mark.parametrize(
    "text",
    [
        "from __future__ import annotations\nimport os, numpy",
        "from spillway.kernels.order import bucket_index",
        "from ..errors import StateError",
        "from . import manifest",
        "from .spark import own_module_of_that_name",
    ],
)
def test_import_of_an_earlier_layer_or_of_itself_is_fine(tree, text):
    assert tree("state/runs/run.py", text) == []


def test_packages_of_the_state_have_an_order(tree):
    assert tree("state/slot/a.py", "from spillway.state.manifest.manifest import Manifest") == []
    wrong = "state/manifest may not import state/slot, which stands after it"
    found = tree("state/manifest/a.py", "from spillway.state.slot.spool import Spooler")
    assert found == [f"state/manifest/a.py:1: {wrong}"]


def test_pyspark_is_for_the_shells_only(tree):
    assert tree("spark/api/query.py", "from pyspark.sql import DataFrame") == []
    wrong = "policies/local/controller.py:1: policies may not import pyspark"
    assert tree("policies/local/controller.py", "import pyspark.sql.functions as F") == [wrong]


def test_the_product_never_imports_the_laboratory(tree):
    wrong = "cli/demo.py:1: the product may not import the laboratory"
    assert tree("cli/demo.py", "from spillway_lab.demo import banks") == [wrong]


def test_public_names_of_the_root_are_for_the_layers_after_it(tree):
    assert tree("__init__.py", "from spillway.spark.api.join import join") == []
    assert (
        tree("spillway_lab/cli/demo.py", "import spillway as sw\nfrom spillway import join") == []
    )
    wrong = "state/runs/run.py:1: state may not import spillway, which stands after it"
    assert tree("state/runs/run.py", "from spillway import join") == [wrong]


def test_package_without_a_place_is_refused(tree):
    assert tree("utils/misc.py", "") == ["utils/misc.py: layer 'utils' has no place in ORDER"]
