"""Flows as files: YAML or XML that name Python code, and Python itself."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, overload

from anabranch.errors import AnabranchError, FlowError, name_alternatives
from anabranch.query.files.building import Constructors, FlowT, Surroundings, build_flow, run_defaults
from anabranch.query.files.documents import read_document, read_run_defaults
from anabranch.query.files.markup import read_xml, read_yaml
from anabranch.query.graph import FlowGraph

_READERS: dict[str, Callable[[str, str], object]] = {".yaml": read_yaml, ".yml": read_yaml, ".xml": read_xml}
_FORMS = "flow.yaml, flow.xml, flow.py, flow.py:attribute or module:attribute"


@dataclass(frozen=True, slots=True)
class FlowFile(Generic[FlowT]):
    """A flow that was read from a file, with what the file says about running it."""

    graph: FlowT
    run: dict[str, Any]
    """Arguments for a run: trigger, drain, slots, strategy, buckets, checkpoint; only those that were given."""
    path: str


@overload
def load_flow(reference: str | Path, *, constructors: Constructors | None = None) -> FlowFile[FlowGraph]: ...


@overload
def load_flow(
    reference: str | Path, *, flow_class: type[FlowT], constructors: Constructors | None = None
) -> FlowFile[FlowT]: ...


def load_flow(
    reference: str | Path, *, flow_class: type[Any] = FlowGraph, constructors: Constructors | None = None
) -> FlowFile[Any]:
    """Read a flow from a YAML, XML or Python file, or from an importable module.

    Code that the file names is run, so read only flows that you would run. Functions of files beside the flow are sent
    to tasks with it; modules that those import in turn must be importable where the tasks run.
    """
    text = str(reference)
    path, _, attribute = text.rpartition(":") if ".py:" in text else (text, "", "")
    suffix = Path(path).suffix.lower()
    if suffix in _READERS:
        return _load_document(_existing(path), _READERS[suffix], flow_class, constructors or Constructors())
    if suffix == ".py":
        file = _existing(path)
        module = _load_module(file)
        return FlowFile(_pick_flow(module, attribute, flow_class, path), _read_run(module, file), str(file))
    name, colon, attribute = text.partition(":")
    if not colon:
        msg = f"{text!r} is no flow file; give {_FORMS}"
        raise FlowError(msg)
    module = _import_module(name, text)
    file = Path(module.__file__) if module.__file__ else Path(text)
    return FlowFile(_pick_flow(module, attribute, flow_class, text), _read_run(module, file), text)


def _load_document(
    path: Path, read: Callable[[str, str], object], flow_class: type[FlowT], constructors: Constructors
) -> FlowFile[FlowT]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        msg = f"{path}: cannot be read: {error}; flow files are UTF-8 text"
        raise FlowError(msg) from error
    document = read_document(read(text, str(path)), str(path))
    code = FlowCode(path.parent, document.python)
    around = Surroundings(constructors, code.find, lambda place: _locate(path.parent, place))
    try:
        return FlowFile(build_flow(document, flow_class, around), run_defaults(document.run, around.locate), str(path))
    except AnabranchError as error:
        raise type(error)(f"{path}: {error}") from error


class FlowCode:
    """The Python code that a flow file may name: its own modules, files beside it, and importable ones."""

    def __init__(self, folder: Path, modules: Sequence[str]) -> None:
        self._folder = folder
        self._files = {Path(module).stem: folder / module for module in modules if module.endswith(".py")}
        self._loaded: dict[str, ModuleType] = {}
        for name, file in self._files.items():
            if not file.is_file():
                msg = f"{folder}: python: no file {file.name!r}; {_name_neighbours(file)}"
                raise FlowError(msg)
            self._loaded[name] = _load_module(file)

    def find(self, reference: str) -> Any:
        """Return what ``module:name`` names; ``name`` may have dots."""
        module_name, colon, attribute = reference.partition(":")
        if not colon or not attribute:
            msg = f"{reference!r} names no code; write module:name, such as readings:clean"
            raise FlowError(msg)
        found: Any = self._module(module_name, reference)
        for part in attribute.split("."):
            if not hasattr(found, part):
                public = [name for name in vars(found) if not name.startswith("_")]
                msg = f"{reference!r}: no {part!r} in it; {name_alternatives(part, public)}"
                raise FlowError(msg)
            found = getattr(found, part)
        return found

    def _module(self, name: str, reference: str) -> ModuleType:
        if name not in self._loaded:
            beside = self._folder / f"{name}.py"
            self._loaded[name] = _load_module(beside) if beside.is_file() else _import_module(name, reference)
        return self._loaded[name]


def _load_module(file: Path) -> ModuleType:
    """Run a Python file as a module that is not left among the imported ones.

    What is not importable by name is pickled by value: that is how functions beside a flow file reach Spark's tasks.
    """
    name = f"_flow_file_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None, f"{file} ends in .py, so Python has a loader for it"
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up while it runs
    sys.path.insert(0, str(file.parent))
    try:
        spec.loader.exec_module(module)
    except AnabranchError as error:
        raise type(error)(f"{file}: {error}") from error
    except Exception as error:
        msg = f"{file}: running it failed: {type(error).__name__}: {error}"
        raise FlowError(msg) from error
    finally:
        sys.path.remove(str(file.parent))
        del sys.modules[name]
    return module


def _import_module(name: str, reference: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        msg = f"{reference!r}: cannot import {name!r}: {error}; put {name}.py beside the flow file, or install it"
        raise FlowError(msg) from error


def _pick_flow(module: ModuleType, attribute: str, flow_class: type[FlowT], where: str) -> FlowT:
    wanted = attribute or "flow"
    if not hasattr(module, wanted):
        flows = [name for name, value in vars(module).items() if isinstance(value, FlowGraph)]
        msg = f"{where}: no attribute {wanted!r}; {name_alternatives(wanted, flows, 'its flows are')}"
        raise FlowError(msg)
    found = getattr(module, wanted)
    if callable(found) and not isinstance(found, FlowGraph):
        try:
            inspect.signature(found).bind()
        except TypeError as error:
            msg = f"{where}: {wanted}() must work without arguments: {error}"
            raise FlowError(msg) from error
        found = found()
    if not isinstance(found, flow_class):
        needed = flow_class.__name__
        msg = f"{where}: {wanted!r} is a {type(found).__name__}; make it a {needed}, or a function that returns one"
        raise FlowError(msg)
    return found


def _read_run(module: ModuleType, file: Path) -> dict[str, Any]:
    """Return what a module says in ``RUN`` about running its flow."""
    said = getattr(module, "RUN", {})
    if isinstance(said, Mapping):
        said = {name: str(value) if isinstance(value, Path) else value for name, value in said.items()}
    return run_defaults(read_run_defaults(said, f"{file}: RUN"), lambda place: _locate(file.parent, place))


def _existing(path: str) -> Path:
    file = Path(path)
    if not file.is_file():
        msg = f"{path}: there is no such flow file; {_name_neighbours(file)}"
        raise FlowError(msg)
    return file.resolve()


def _name_neighbours(file: Path) -> str:
    if not file.parent.is_dir():
        return f"nor a folder {str(file.parent)!r}"
    neighbours = sorted(p.name for p in file.parent.iterdir() if p.suffix.lower() in (*_READERS, ".py"))
    return name_alternatives(file.name, neighbours, "beside it are")


def _locate(folder: Path, place: str) -> str:
    """Return a path relative to the flow file in full; addresses with a scheme stay as they are."""
    return place if "://" in place else str(folder / place)
