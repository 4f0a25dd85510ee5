"""The rooms of src/anabranch keep to the table in docs/architecture.md.

The document is the rule: change the table there, and this test follows.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from rooms import Rooms, read_rooms

PROJECT = Path(__file__).resolve().parents[1]
PACKAGE = PROJECT / "src" / "anabranch"
DOCUMENT = PROJECT / "docs" / "architecture.md"

LONG_MODULE_LINES = 450
"""Where a reader may ask whether a module has one concern; no reason by itself to part it."""

# Modules beside the rooms, and whether they may import rooms.
TOP_MODULES = {
    "__init__": True,  # the public face gathers names from every room
    "__main__": True,  # `python -m anabranch` is the command
    "errors": False,  # every room raises these, so they stand below all of them
}

# Clocks, randomness, files, engines, logs and threads: what a pure room gets passed in, or does without.
IMPURE_MODULES = frozenset(
    {
        "glob",
        "logging",
        "os",
        "pathlib",
        "py4j",
        "pyspark",
        "random",
        "secrets",
        "shutil",
        "socket",
        "subprocess",
        "tempfile",
        "threading",
        "time",
        "uuid",
    }
)

# Module of a pure room → the impure modules it may import all the same. Each entry says why in a comment.
ALLOWED_IMPURE_IMPORTS: dict[str, frozenset[str]] = {
    # Flows can be files, and the paths in them are relative to them; what they say is parsed and built elsewhere.
    "query/files/reading.py": frozenset({"pathlib"}),
    # The one shell around what decides: commands come from other threads, and decisions are logged.
    "control/rebalancer.py": frozenset({"logging", "threading"}),
    # A thread waits for commands, so that no batch has to.
    "control/listening.py": frozenset({"logging", "threading"}),
}


# The engine is the same without Spark; a command opens sessions, the lab starts Spark's own programs.
ROOMS_WITH_SPARK = frozenset({"spark", "cli", "lab"})
# Benches are not in the wheel: one module looks for them, and says where they are if it finds none.
MODULES_THAT_KNOW_BENCHES = frozenset({"cli/bench.py"})
# Only for the types of what users are handed.
MODULES_THAT_NAME_SPARK = frozenset({"connectors/foreach_sink.py"})


@dataclass(frozen=True, slots=True)
class Import:
    """One imported name, in full, and the line that imports it."""

    name: str
    line: int


def find_imports(source: str, package: str) -> list[Import]:
    """Return every import in a module of ``package``, relative ones resolved, also inside functions.

    ``from a import b`` counts as ``a.b``. ``import_module`` is seen only when it is given a literal name.
    """
    found = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=aliases):
                found += [Import(alias.name, node.lineno) for alias in aliases]
            case ast.ImportFrom(module=module, names=aliases, level=level):
                # Each dot after the first climbs one package up.
                ancestors = package.split(".")[: len(package.split(".")) - level + 1] if level else []
                parts = [*ancestors, *([module] if module else [])]
                found += [Import(".".join([*parts, alias.name]), node.lineno) for alias in aliases]
            case ast.Call(
                func=ast.Name(id="import_module" | "__import__") | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                found.append(Import(name, node.lineno))
    return found


def find_opened_files(source: str) -> list[int]:
    """Return the lines that call the builtin ``open``."""
    if "open" not in source:
        return []
    return [
        node.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "open"
    ]


@cache
def list_modules() -> list[Path]:
    """Return the package's modules, relative to the package."""
    return sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))


def lies_in_a_room(module: Path) -> bool:
    return len(module.parts) > 1


@cache
def read_imports(module: Path) -> list[Import]:
    source = (PACKAGE / module).read_text(encoding="utf-8")
    return find_imports(source, ".".join(["anabranch", *module.parent.parts]))


def wrong_room_imports(module: Path, imports: list[Import], rooms: Rooms) -> Iterator[str]:
    """Yield a sentence for each import of a room, or of the public face, that the table doesn't grant."""
    every_room = frozenset(rooms.may_import)
    if lies_in_a_room(module):
        room = rooms.find(module.parts[:-1])
        allowed = frozenset() if room is None else rooms.may_import[room]
    else:
        allowed = every_room if TOP_MODULES.get(module.stem, False) else frozenset()
    for item in imports:
        root, *rest = item.name.split(".")
        target = rooms.find(rest)
        if root != "anabranch" or rest[:1] == ["errors"] or target in allowed:
            continue
        where = f"{module}:{item.line}"
        if target is not None:
            granted = ", ".join(sorted(allowed)) or "no room"
            yield f"{where} imports the room {target!r}; it may import: {granted}"
        elif allowed != every_room:
            # The public face imports every room, so whoever imports it does, too.
            yield f"{where} imports {item.name!r} from the public face; import it from the room that defines it"


def impure_imports(module: Path, imports: list[Import]) -> Iterator[str]:
    """Yield a sentence for each import that brings into a pure room what should be passed in."""
    allowed = ALLOWED_IMPURE_IMPORTS.get(module.as_posix(), frozenset())
    for item in imports:
        root = item.name.split(".")[0]
        if root in IMPURE_MODULES - allowed:
            yield f"{module}:{item.line} imports {root!r} in a pure room; pass in what it is needed for"


def report(violations: list[str]) -> str:
    return "\n".join(["", *violations])


@pytest.fixture(scope="module")
def rooms() -> Rooms:
    return read_rooms(DOCUMENT.read_text(encoding="utf-8"))


def test_every_folder_is_a_room_of_the_table(rooms: Rooms) -> None:
    strangers = sorted({m.parts[0] for m in list_modules() if lies_in_a_room(m) and rooms.find(m.parts[:-1]) is None})
    assert not strangers, f"folders without a row in docs/architecture.md: {strangers}"


def test_beside_the_rooms_lie_only_the_known_modules() -> None:
    strangers = [
        str(module) for module in list_modules() if not lies_in_a_room(module) and module.stem not in TOP_MODULES
    ]
    assert not strangers, f"modules outside every room: {strangers}; move them into one"


def test_rooms_import_only_what_the_table_grants(rooms: Rooms) -> None:
    violations = [text for module in list_modules() for text in wrong_room_imports(module, read_imports(module), rooms)]
    assert not violations, report(violations)


def test_pure_rooms_import_no_engine_clock_randomness_files_log_or_thread(rooms: Rooms) -> None:
    violations = [
        text
        for module in list_modules()
        if rooms.find(module.parts[:-1]) in rooms.pure
        for text in impure_imports(module, read_imports(module))
    ]
    assert not violations, report(violations)


def test_pure_rooms_open_no_files(rooms: Rooms) -> None:
    violations = [
        f"{module}:{line} opens a file in a pure room; take its text as an argument"
        for module in list_modules()
        if rooms.find(module.parts[:-1]) in rooms.pure and module.as_posix() not in ALLOWED_IMPURE_IMPORTS
        for line in find_opened_files((PACKAGE / module).read_text(encoding="utf-8"))
    ]
    assert not violations, report(violations)


def test_spark_is_known_in_its_own_room_only() -> None:
    violations = [
        f"{module}:{item.line} imports PySpark outside of {', '.join(sorted(ROOMS_WITH_SPARK))}"
        for module in list_modules()
        if module.parts[0] not in ROOMS_WITH_SPARK and module.as_posix() not in MODULES_THAT_NAME_SPARK
        for item in read_imports(module)
        if item.name.split(".")[0] == "pyspark"
    ]
    assert not violations, report(violations)


def hidden_modules(package: Path, imports: list[Import]) -> list[str]:
    """Return which modules of a package cannot be reached by their dotted name, because it exports a name of theirs."""
    folders = [path.parent for path in package.glob("*/__init__.py")]
    modules = {path.stem for path in [*package.glob("*.py"), *folders]}
    dotted = ".".join(["anabranch", *package.relative_to(PACKAGE).parts])
    # `from package import module` makes known the module itself.
    others = {item.name for item in imports if item.name.rpartition(".")[0] != dotted}
    return sorted(modules & {name.rpartition(".")[2] for name in others})


def test_no_package_exports_a_name_that_hides_one_of_its_modules() -> None:
    violations = [
        f"{module} exports {name!r}, which is also a module beside it; give the module a name of its own"
        for module in list_modules()
        if module.name == "__init__.py"
        for name in hidden_modules((PACKAGE / module).parent, read_imports(module))
    ]
    assert not violations, report(violations)


def test_what_is_not_in_the_wheel_is_imported_by_the_command_for_benches_only() -> None:
    violations = [
        f"{module}:{item.line} imports {item.name}, which is not in the wheel"
        for module in list_modules()
        if module.as_posix() not in MODULES_THAT_KNOW_BENCHES
        for item in read_imports(module)
        if item.name.split(".")[0] in ("benchmarks", "examples", "tests")
    ]
    assert not violations, report(violations)


def test_unit_tests_start_no_servers() -> None:
    # A registry of schemas is a thread of the test; all others are programs.
    violations = [
        f"{module.relative_to(PROJECT)}:{found.line}: imports {found.name}"
        for module in sorted((PROJECT / "tests" / "unit").rglob("*.py"))
        for found in find_imports(module.read_text("utf-8"), "unit")
        if found.name.startswith("servers.") and not found.name.startswith("servers.schema_registry.")
    ]
    assert not violations, report(violations)


# Folders that the document names and that are not in the project.
FOLDERS_ELSEWHERE = {
    "console": "a room of the table that is where a later part goes",
    "history": "lies in a checkpoint",
}


def test_files_and_folders_that_the_document_names_exist() -> None:
    lost = find_lost(DOCUMENT.read_text(encoding="utf-8"))
    assert sorted(lost) == sorted(FOLDERS_ELSEWHERE), "docs/architecture.md names what is not there, or no longer does"


def find_lost(text: str) -> list[str]:
    """Return the files and folders in backticks that do not exist.

    A path begins at the package, the project, its unit tests, or a folder that its paragraph or row of a table names.
    """
    lost = []
    for paragraph in re.split(r"\n\n|\n(?=\|)", text):
        named = [Path(name) for name in re.findall(r"`([\w./]+(?:\.py|/))`", paragraph)]
        folders = {folder for path in named for folder in (path if not path.suffix else path.parent, *path.parents)}
        begins = [root / folder for root in (PACKAGE, PROJECT, PROJECT / "tests" / "unit") for folder in folders]
        lost += [str(path) for path in named if not any((begin / path).exists() for begin in begins)]
    return lost


def test_a_file_that_is_not_there_is_found_wherever_its_folder_is_named() -> None:
    assert not find_lost("`control/decide/balancer.py` decides, `trials.py` tries, in `observe/` is what is seen")
    assert find_lost("`control/decide/balancer.py` decides, `gone.py` tries") == ["gone.py"]
    assert find_lost("in `control/`\n\n`loop.py` is elsewhere") == ["loop.py"]
    assert find_lost("| `cleaning/` | rooms |\n| `model/` | words |") == ["cleaning"]


def test_every_allowed_exception_is_still_needed() -> None:
    stale = [
        f"{name}: {sorted(unused)}"
        for name, allowed in ALLOWED_IMPURE_IMPORTS.items()
        if (unused := allowed - {item.name.split(".")[0] for item in read_imports(Path(name))})
    ]
    assert not stale, f"ALLOWED_IMPURE_IMPORTS names imports that are gone: {stale}"


def count_lines(text: str) -> int:
    """Return the lines of a module without its docstrings: their examples are for readers of the reference."""
    owners = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    documented = [node for node in ast.walk(ast.parse(text)) if isinstance(node, owners) and ast.get_docstring(node)]
    shown = sum((node.body[0].end_lineno or 0) - node.body[0].lineno for node in documented)
    return len(text.splitlines()) - shown


def test_long_modules_are_pointed_out() -> None:
    texts = {module: (PACKAGE / module).read_text(encoding="utf-8") for module in list_modules()}
    lengths = {m: count_lines(text) for m, text in texts.items() if text.count("\n") > LONG_MODULE_LINES}
    long = [f"{module}: {lines} lines" for module, lines in lengths.items() if lines > LONG_MODULE_LINES]
    if long:
        # A hint: modules are parted by concern, and one concern may take more lines than this.
        warnings.warn(f"longer than {LONG_MODULE_LINES} lines; do they have one concern each? {long}", stacklevel=1)


# Compiled loops and their twins.


@dataclass(frozen=True, slots=True)
class Twin:
    """A row of the document's table of compiled loops."""

    loop: str
    twin: tuple[str, str]
    """File and function."""
    test: tuple[str, str]


def read_twins(text: str) -> list[Twin]:
    """Return the rows of the document's section "Compiled loops"; a twin has the loop's name unless it says another."""
    section = re.search(r"^## Compiled loops\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert section, "docs/architecture.md has no section '## Compiled loops'"
    form = r"^\| `(\w+)\.(\w+)` \|[^|\n]*\| `([\w/.]+)`(?: `(\w+)`)?[^|\n]*\| `([\w/.]+)` `(\w+)` \|$"
    rows = re.findall(form, section[1], re.MULTILINE)
    assert len(rows) == section[1].count("\n| `"), (
        "a row is not of the form | `module.loop` | gives | `twin.py` | `test.py` `test` |"
    )
    return [
        Twin(f"{module}.{loop}", (twin, other or loop), (test, name)) for module, loop, twin, other, test, name in rows
    ]


def find_compiled(source: str) -> list[str]:
    """Return what a module compiles under a public name: by ``compile_loop``, Numba's own names, or as an intrinsic."""
    found = []
    for node in ast.parse(source).body:
        match node:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=value)
            ):
                made = value is not None and any(
                    isinstance(one, ast.Call) and ast.unparse(one.func) == "compile_loop" for one in ast.walk(value)
                )
            case ast.FunctionDef(name=name, decorator_list=decorators):
                made = any(re.search("njit|jit|intrinsic|vectorize", ast.unparse(one)) for one in decorators)
            case _:
                continue
        if made and not name.startswith("_"):
            found.append(name)
    return found


def names_function(path: Path, name: str) -> bool:
    """Say whether a file has a function of this name, or another name for one."""
    if not path.is_file():
        return False
    body = ast.parse(path.read_text(encoding="utf-8")).body
    functions = {node.name for node in body if isinstance(node, ast.FunctionDef)}
    others = {
        node.targets[0].id for node in body if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    return name in functions | others


def test_every_compiled_loop_has_a_row_with_its_twin_and_its_test() -> None:
    compiled = [
        f"{path.stem}.{name}"
        for path in sorted((PACKAGE / "compiled").glob("*.py"))
        for name in find_compiled(path.read_text(encoding="utf-8"))
    ]
    twins = read_twins(DOCUMENT.read_text(encoding="utf-8"))
    assert sorted(compiled) == sorted(twin.loop for twin in twins), "docs/architecture.md, Compiled loops"
    missing = [twin.twin for twin in twins if not names_function(PACKAGE / twin.twin[0], twin.twin[1])]
    missing += [
        twin.test for twin in twins if not names_function(PROJECT / "tests" / "unit" / twin.test[0], twin.test[1])
    ]
    assert not missing, f"the table of compiled loops names what is not there: {missing}"


def test_a_test_of_a_compiled_loop_names_it() -> None:
    unnamed = []
    for twin in read_twins(DOCUMENT.read_text(encoding="utf-8")):
        loop = twin.loop.split(".")[1]
        if twin.twin[0].startswith("compiled/plain/"):
            text = (PROJECT / "tests" / "unit" / twin.test[0]).read_text(encoding="utf-8")
            body = next(
                node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef) and node.name == twin.test[1]
            )
            told = ast.unparse(body) + "".join(
                re.findall(r"^def check_\w+.*?(?=^def |^@|\Z)", text, re.MULTILINE | re.DOTALL)
            )
            unnamed += [twin.loop] if not re.search(rf"\b{loop}\b", told) else []
    assert not unnamed, f"tests that do not call the loop that they are said to compare: {unnamed}"


def test_nothing_is_compiled_outside_of_its_room() -> None:
    violations = [
        f"{module}:{item.line} imports {item.name}; loops lie in compiled/"
        for module in list_modules()
        if module.parts[0] != "compiled" or module.parts[1] == "plain"
        for item in read_imports(module)
        if item.name.split(".")[0] in ("numba", "llvmlite") or item.name.endswith(".jit.compile_loop")
    ]
    assert not violations, report(violations)


# The rules above are worth what the reader of imports is worth.


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import anabranch.routing.table", "anabranch.routing.table"),
        ("from anabranch import routing", "anabranch.routing"),
        ("from anabranch.routing import table", "anabranch.routing.table"),
        ("from . import moves", "anabranch.balancing.moves"),
        ("from .moves import Move", "anabranch.balancing.moves.Move"),
        ("from .. import routing", "anabranch.routing"),
        ("from ..routing.table import Route", "anabranch.routing.table.Route"),
        ("def plan():\n    import anabranch.spark", "anabranch.spark"),
        ("import importlib\nimportlib.import_module('anabranch.spark')", "anabranch.spark"),
    ],
)
def test_every_way_to_import_is_found(source: str, expected: str) -> None:
    assert expected in {item.name for item in find_imports(source, "anabranch.balancing")}


@pytest.mark.parametrize(
    ("module", "source", "wrong"),
    [
        ("balancing/greedy.py", "from ..routing import table", False),
        ("balancing/greedy.py", "from ..spark import session", True),
        ("balancing/greedy.py", "from ..errors import RouteError", False),
        ("balancing/greedy.py", "from anabranch import Flow", True),
        ("balancing/deep/greedy.py", "from ...spark import session", True),
        ("model/moves.py", "from anabranch.routing import table", True),
        ("eventtime/flow/times.py", "from ...query import plan", False),
        ("eventtime/times.py", "from ..query import plan", True),
        ("eventtime/times.py", "from .flow import times", True),
        ("query/plan.py", "from anabranch.eventtime import windows", False),
        ("query/plan.py", "from anabranch.eventtime.flow import times", True),
        ("spark/driver.py", "from anabranch.connectors import files", False),
        ("spark/driver.py", "from anabranch.cli import main", True),
        ("cli/run/command.py", "from anabranch import Flow", False),
        ("errors.py", "from anabranch.model import Move", True),
        ("__init__.py", "from anabranch.query import Flow", False),
    ],
)
def test_the_table_decides_over_imports(module: str, source: str, wrong: bool, rooms: Rooms) -> None:
    path = Path(module)
    imports = find_imports(source, ".".join(["anabranch", *path.parent.parts]))
    assert bool(list(wrong_room_imports(path, imports, rooms))) is wrong


def test_an_impure_import_in_a_pure_room_is_found() -> None:
    assert list(impure_imports(Path("routing/table.py"), find_imports("from time import time", "anabranch.routing")))
    assert not list(impure_imports(Path("routing/table.py"), find_imports("import math", "anabranch.routing")))


def test_a_module_hidden_by_an_exported_name_is_found() -> None:
    package = PACKAGE / "connectors"
    hiding = find_imports("from anabranch.model import waits, retry", "anabranch.connectors")
    assert hidden_modules(package, hiding) == ["retry", "waits"]
    assert not hidden_modules(package, find_imports("from . import waits", "anabranch.connectors"))
