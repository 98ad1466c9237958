"""What adapters ask of their engines: every recorded name is looked for, and another version or name is said."""

import copy
import importlib.util
import sys

import pytest
import recorded

import ferry
from ferry.adapters import _interface, _shared

ENGINES = sorted(path.stem for path in _interface.RECORDS.glob("*.json"))


def without(record):
    """(what is gone, the record without it), for each name, method, field and attribute."""
    for module, names in record["modules"].items():
        for name, wanted in names.items():
            inside = [] if isinstance(wanted, str) else [
                (kind, one) for kind in ("methods", "fields", "attributes") for one in wanted.get(kind, ())]
            inherited = {(kind, one) for base in ({} if isinstance(wanted, str) else wanted).get("bases", ())
                         for kind in ("methods", "fields", "attributes") for one in names[base].get(kind, ())}
            users = [other for other in names.values() if isinstance(other, dict) and name in other.get("bases", ())]
            is_owner = any(other.startswith(f"{name}.") for other in names)
            is_inherited = bool(names.get(name.rpartition(".")[0], {}).get("bases"))
            for kind, one in inside:
                if (kind, one) in inherited or kind == "methods" and one == "__init__":
                    continue
                less = copy.deepcopy(record)
                kept = less["modules"][module][name][kind]
                kept.pop(one) if isinstance(kept, dict) else kept.remove(one)
                for other in less["modules"][module].values():  # nor may another class have it to inherit
                    if isinstance(other, dict) and name in other.get("bases", ()) and isinstance(other.get(kind), dict):
                        other[kind].pop(one, None)
                yield one, less
            if not users and not is_owner and not is_inherited:
                less = copy.deepcopy(record)
                del less["modules"][module][name]
                yield name.rpartition(".")[2], less


def required(engine, record):
    """What is said of an engine that is as in `record`; None: it fits."""
    modules = recorded.modules_of(record)
    before = {name: sys.modules.pop(name, None) for name in modules}
    sys.modules.update(modules)
    try:
        _interface.require(engine)
        return None
    except ferry.Unsupported as error:
        return str(error)
    finally:
        for name, old in before.items():
            sys.modules.pop(name)
            if old is not None:
                sys.modules[name] = old


@pytest.fixture(autouse=True)
def _no_version(monkeypatch):
    monkeypatch.setattr(_interface, "installed_version", lambda record: None)


@pytest.mark.parametrize("engine", ENGINES)
def test_each_recorded_name_is_asked_for(engine):
    record = _interface.record_of(engine)
    assert required(engine, record) is None
    gone = 0
    for name, less in without(record):
        says = required(engine, less)
        assert says is not None and name in says and _interface.known_versions(record) in says, (name, says)
        gone += 1
    assert gone > 5


@pytest.mark.parametrize("engine", ENGINES)
def test_other_parameters_are_said(engine):
    record = _interface.record_of(engine)
    for module, names in record["modules"].items():
        for name, wanted in names.items():
            methods = {} if isinstance(wanted, str) else wanted.get("methods", {})
            for method in methods:
                other = copy.deepcopy(record)
                other["modules"][module][name]["methods"][method] = "(self, other)"
                says = required(engine, other)
                assert f"{name}.{method} takes (self, other), not (" in says
            if isinstance(wanted, str):
                other = copy.deepcopy(record)
                other["modules"][module][name] = "(other)"
                assert f"{module}.{name} takes (other), not (" in required(engine, other)


@pytest.mark.parametrize("engine", ENGINES)
def test_another_version_is_said(engine, monkeypatch):
    record = _interface.record_of(engine)
    monkeypatch.setattr(_interface, "installed_version", lambda record: "99.1")
    says = required(engine, record)
    assert f"{engine} is 99.1" in says and _interface.known_versions(record) in says and _interface.ANY_VERSION in says
    monkeypatch.setenv(_interface.ANY_VERSION, "1")
    assert required(engine, record) is None


@pytest.mark.parametrize("engine, tried, refused", [
    ("vllm", ["0.33.0", "0.33.7", "0.33.1rc1"], ["0.34.0", "0.32.9", "0.330.0"]),
    ("torchtitan", ["0.3.0", "0.3.1", "0.2.2"], ["0.4.0", "0.2.3", "0.30.0"]),
    ("sglang", ["0.5.23", "0.5.23.post1"], ["0.5.24", "0.5.2", "0.5.230"])])
def test_another_patch_release_is_tried_where_the_docs_say_so(engine, tried, refused, monkeypatch):
    record = _interface.record_of(engine)
    for version in (*tried, *refused):
        monkeypatch.setattr(_interface, "installed_version", lambda record: version)  # noqa: B023
        says = required(engine, record)
        assert says is None if version in tried else f"{engine} is {version}; " in says, version
    some = next(without(record))  # names are compared all the same
    monkeypatch.setattr(_interface, "installed_version", lambda record: tried[1])
    assert some[0] in required(engine, some[1])


def test_versions():
    assert _interface.is_version("0.2.2rc1+gabc", "0.2.2") and _interface.is_version("0.2.2", "0.2")
    assert not _interface.is_version("0.2.20", "0.2.2") and not _interface.is_version("0.2", "0.2.2")
    assert not _interface.is_version("unknown", "0.2")


@pytest.mark.parametrize("engine", ENGINES)
def test_without_the_engine(engine):
    if importlib.util.find_spec(engine) is not None:
        pytest.skip(f"{engine} is installed")
    with pytest.raises(ImportError, match=f"{engine} is not installed; ferry's adapter for it knows"):
        _interface.require(engine)


def test_deadlines_of_the_environment_are_judged(monkeypatch):
    for variable in ("FERRY_VLLM_DEADLINE", "FERRY_SGLANG_DEADLINE"):
        monkeypatch.delenv(variable, raising=False)
        assert _shared.deadline_of(variable) == 600.0
        for value in ("0.5", "86400"):
            monkeypatch.setenv(variable, value)
            assert _shared.deadline_of(variable) == float(value)
        for value in ("", "soon", "-1", "0", "nan", "inf", "86401"):
            monkeypatch.setenv(variable, value)
            with pytest.raises(ferry.InvalidArgument, match=f"^{variable} is '{value}'; it must be a number of seconds above "
                               "0 and at most 86400$"):
                _shared.deadline_of(variable)
