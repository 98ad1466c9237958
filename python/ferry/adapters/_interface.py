"""What an adapter takes from its engine: the names, fields and parameters that were read in a version of it.

interfaces/ENGINE.json lists them. An engine that differs is refused when its adapter is turned on, and not somewhere
inside a model.
"""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import importlib.util
import inspect
import json
import os
import pathlib
import re
from types import SimpleNamespace
from typing import Any

from .._errors import Unsupported

RECORDS = pathlib.Path(__file__).parent / "interfaces"
ANY_VERSION = "FERRY_ADAPTERS_ANY_VERSION"  #: set to 1: an unknown version is tried, if its names fit


def record_of(engine: str) -> dict[str, Any]:
    """What was read of an engine: `versions`, and `modules`: by module and name a function's parameters as text, or a
    class: its bases, methods, fields and other attributes."""
    record: dict[str, Any] = json.loads((RECORDS / f"{engine}.json").read_text(encoding="utf-8"))
    return record


def require(engine: str) -> SimpleNamespace:
    """The recorded names of an engine, by the last part of their names. Imports the modules that have them.

    Raises ImportError where the engine is not installed, and Unsupported where its version is not one that was read, or
    a name is missing or has other parameters.
    """
    record = record_of(engine)
    _require_installed(record)
    _require_version(record)
    found = SimpleNamespace()
    for module, names in record["modules"].items():
        for name, wanted in names.items():
            value = _look_up(record, module, name)
            _require_like(record, f"{module}.{name}", value, wanted)
            if "." not in name:
                setattr(found, name, value)
    return found


def parameters_of(signature: str) -> list[str]:
    """The names of the parameters of a recorded signature, in order."""
    function = ast.parse(f"def f{signature}: ...").body[0]
    assert isinstance(function, ast.FunctionDef)
    given = function.args
    names = [one.arg for one in (*given.posonlyargs, *given.args)]
    names += [] if given.vararg is None else [given.vararg.arg]
    names += [one.arg for one in given.kwonlyargs]
    return names + ([] if given.kwarg is None else [given.kwarg.arg])


def known_versions(record: dict[str, Any]) -> str:
    return ", ".join(f"{one['version']} (commit {one['commit'][:9]})" if one["commit"] else one["version"]
                     for one in record["versions"])


def installed_version(record: dict[str, Any]) -> str | None:
    """None: it is there, but not installed, as a checkout on PYTHONPATH is."""
    try:
        return importlib.metadata.version(record["distribution"])
    except importlib.metadata.PackageNotFoundError:
        return None


def _require_installed(record: dict[str, Any]) -> None:
    if importlib.util.find_spec(record["engine"]) is None:
        raise ImportError(f"{record['engine']} is not installed; ferry's adapter for it knows {known_versions(record)}",
                          name=record["engine"])


def _require_version(record: dict[str, Any]) -> None:
    version = installed_version(record)
    if version is None or os.environ.get(ANY_VERSION) == "1":
        return
    if not any(is_version(version, one["version"]) for one in record["versions"]):
        raise Unsupported(f"{record['engine']} is {version}; ferry's adapter for it knows {known_versions(record)}. "
                          f"{ANY_VERSION}=1 tries another version, if its names fit")


def is_version(version: str, known: str) -> bool:
    """Whether 0.2.2rc1.dev5+gabc is a 0.2.2, or a 0.2."""
    numbers = re.match(r"\d+(\.\d+)*", version)
    return numbers is not None and f"{numbers.group()}.".startswith(f"{known}.")


def _look_up(record: dict[str, Any], module: str, name: str) -> Any:
    try:
        value = importlib.import_module(module)
        for part in name.split("."):
            value = getattr(value, part)
        return value
    except AttributeError:
        missing = f"{module} has no {name}"
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # the engine lacks something that is not its own
        missing = f"there is no {module}"
    raise Unsupported(_differs(record, missing))


def _require_like(record: dict[str, Any], name: str, value: Any, wanted: Any) -> None:
    if isinstance(wanted, str):
        return _require_parameters(record, name, value, wanted)
    for method, signature in wanted.get("methods", {}).items():
        if not hasattr(value, method):
            raise Unsupported(_differs(record, f"{name} has no {method}"))
        _require_parameters(record, f"{name}.{method}", inspect.getattr_static(value, method), signature)
    kinds = ("__dataclass_fields__", "_fields", "__annotations__")  # of dataclasses, named tuples, any class
    fields = next((getattr(value, kind) for kind in kinds if hasattr(value, kind)), ())
    for field in wanted.get("fields", ()):
        if field not in fields:
            raise Unsupported(_differs(record, f"{name} has no field {field}"))
    for attribute in wanted.get("attributes", ()):
        if not hasattr(value, attribute):
            raise Unsupported(_differs(record, f"{name} has no {attribute}"))
    return None


def _require_parameters(record: dict[str, Any], name: str, value: Any, signature: str) -> None:
    if isinstance(value, property):
        value = value.fget
    if isinstance(value, (classmethod, staticmethod)):
        value = value.__func__
    if not callable(value):
        raise Unsupported(_differs(record, f"{name} is no function"))
    wanted, found = parameters_of(signature), list(inspect.signature(value).parameters)
    if wanted != found:
        raise Unsupported(_differs(record, f"{name} takes ({', '.join(found)}), not ({', '.join(wanted)})"))


def _differs(record: dict[str, Any], what: str) -> str:
    version = installed_version(record)
    return (f"{what}, in {record['engine']} {version or '(not installed, so without a version)'}; ferry's adapter for it "
            f"knows {known_versions(record)}")
