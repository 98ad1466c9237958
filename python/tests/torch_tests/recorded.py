"""Engines built from their records: modules with the recorded names, whose functions take the recorded parameters and
refuse to be called. Tests of adapters give some of them a body."""

import contextlib
import dataclasses
import importlib
import importlib.machinery
import inspect
import sys
import types

from ferry import _exchange as plain
from ferry.adapters import _interface


def function_of(name, signature):
    names = {}
    exec(f"def {name}{signature}:\n    raise NotImplementedError('{name} is recorded, and no more')", names)  # pylint: disable=exec-used
    return classmethod(names[name]) if signature.startswith("(cls") else names[name]


def _class_of(name, wanted, bases):
    body = dict.fromkeys(wanted.get("attributes", ()))
    body |= {method: function_of(method, signature) for method, signature in wanted.get("methods", {}).items()}
    body["__annotations__"] = {field: "object" for field in wanted.get("fields", ())}
    return type(name.rpartition(".")[2], bases, body)


def modules_of(record):
    """{module: its module}, with the packages above."""
    made, classes = {}, {}
    for path, names in record["modules"].items():
        for end in range(1, path.count(".") + 2):
            package = ".".join(path.split(".")[:end])
            if package not in made:
                made[package] = types.ModuleType(package)
                made[package].__path__ = []
                made[package].__spec__ = importlib.machinery.ModuleSpec(package, None, is_package=True)
                above, _, last = package.rpartition(".")
                if above:
                    setattr(made[above], last, made[package])
        for name, wanted in names.items():
            owner, _, last = name.rpartition(".")
            if isinstance(wanted, str):
                value = function_of(last, wanted)
            else:
                value = _class_of(name, wanted, tuple(classes[base] for base in wanted.get("bases", ())))
                classes[name] = value
            setattr(classes[owner] if owner else made[path], last, value)
    return made


def give(owner, **functions):
    """Gives recorded functions of a module or class a body. Its parameters must be the recorded ones."""
    for name, function in functions.items():
        wanted, found = (list(inspect.signature(one).parameters) for one in (getattr(owner, name), function))
        assert wanted == found, f"{name} is recorded with {wanted}"
        setattr(owner, name, function)


def config(owner, **more):
    """Makes a recorded class of fields a dataclass, as engines have them."""
    owner.__annotations__ = dict.fromkeys(owner.__annotations__, object)
    made = dataclasses.dataclass(kw_only=True, slots=True, **more)(owner)
    return made


@contextlib.contextmanager
def installed(modules, *adapter):
    """With these modules, yields the first of the adapter's own, imported anew; takes all away again."""
    own = [f"ferry.adapters.{name}" for name in adapter]
    before = {module: sys.modules.pop(module, None) for module in (*modules, *own)}
    sys.modules.update(modules)
    try:
        yield importlib.import_module(own[0])
    finally:
        for module, old in before.items():
            sys.modules.pop(module, None)
            if old is not None:
                sys.modules[module] = old


def differences(record, cls, name):
    """Of the methods that `cls` defines and class `name` is recorded with: those whose parameters are others. How one is
    made is its own affair."""
    wanted = next(names[name] for names in record["modules"].values() if name in names)["methods"]
    ours = {method: list(inspect.signature(vars(cls)[method]).parameters)
            for method in vars(cls).keys() & wanted.keys() - {"__init__"}}
    assert ours, f"{cls.__name__} defines none of the methods of {name}"
    return {method: names for method, names in ours.items() if names != _interface.parameters_of(wanted[method])}


@contextlib.contextmanager
def host_waits_for_nothing():
    """As in a capture: whoever asks for the counts of a dispatch is refused."""
    def refuse(*_, **__):
        raise AssertionError("the host waits for counts")

    waits, plain.Exchange.wait_for_counts = plain.Exchange.wait_for_counts, refuse
    try:
        yield
    finally:
        plain.Exchange.wait_for_counts = waits
