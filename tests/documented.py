"""What the docstring of a public name has to say, found by introspection: new names are held to it by being public."""

from __future__ import annotations

import ast
import doctest
import inspect
import re
import textwrap
from dataclasses import dataclass, fields, is_dataclass
from functools import cached_property
from types import ModuleType
from typing import TYPE_CHECKING, Any

import faultlines as fl
from faultlines.comparison.base import Comparison
from faultlines.guarantees.base import Guarantee

if TYPE_CHECKING:
    from collections.abc import Iterator

# What a guarantee or a comparison of one's own has to offer is said once, where it is asked for.
PROTOCOLS = (Guarantee, Comparison)
SECTIONS = ("Args", "Attributes", "Returns", "Yields", "Raises", "Example")


@dataclass(frozen=True)
class Name:
    """A public name: a function or class of the library, or a method or property of such a class."""

    path: str
    value: Any
    owner: type | None = None

    @property
    def doc(self) -> str:
        """Its own documentation; not that of a parent or of the type it is an instance of."""
        return inspect.cleandoc(self.function.__doc__ or "")

    @property
    def is_property(self) -> bool:
        return isinstance(self.value, property | cached_property)

    @property
    def function(self) -> Any:
        """What was written: the function behind a property or a decorator."""
        if isinstance(self.value, property):
            return self.value.fget
        if isinstance(self.value, cached_property):
            return self.value.func
        return inspect.unwrap(getattr(self.value, "__func__", self.value))


def public_names() -> dict[str, list[Name]]:
    """Every public name of the library with those of its members, by what a user types after `fl.`."""
    found: dict[str, list[Name]] = {}
    for name in fl.__all__:
        value = getattr(fl, name)
        if isinstance(value, ModuleType):
            inside = {key: one for key, one in vars(value).items() if getattr(one, "__module__", "") == value.__name__}
            found |= {f"{name}.{key}": named(f"{name}.{key}", inside[key]) for key in inside if key[0] != "_"}
        elif callable(value):
            found[name] = named(name, value)
    return {name: members for name, members in found.items() if members}


def named(path: str, value: Any) -> list[Name]:
    """A function, or a class with its public members; nothing for other values, such as the name of a type."""
    if not inspect.isclass(value):
        return [Name(path, value)] if inspect.isfunction(inspect.unwrap(value)) else []
    return [Name(path, value), *(Name(f"{path}.{key}", one, value) for key, one in members(value))]


def members(owner: type) -> Iterator[tuple[str, Any]]:
    for key in dir(owner):
        value = inspect.getattr_static(owner, key)
        written = Name(key, value).function
        if key[0] != "_" and inspect.isfunction(written) and written.__module__.startswith("faultlines"):
            yield key, value


def sections(doc: str) -> dict[str, str]:
    """The sections of a docstring, by heading; its summary and prose under ''."""
    found, heading = {"": ""}, ""
    for line in doc.splitlines():
        start = re.fullmatch(r"(\w+):", line)
        if start and start[1] in SECTIONS:
            heading = start[1]
            found[heading] = ""
        else:
            found[heading] += line + "\n"
    return found


def problems(name: Name) -> list[str]:
    """What is missing in the documentation of a name."""
    if not name.doc:
        return ["has no docstring"]
    found = sections(name.doc)
    missing = [] if re.match(r"\S.*[.:?]$", found[""].split("\n\n")[0], re.DOTALL) else ["has no summary sentence"]
    if (
        name.owner is not None
        and name.owner not in PROTOCOLS
        and any(hasattr(one, name.path.rpartition(".")[2]) for one in offered(name.owner))
    ):
        return missing
    described = found.get("Args", "") + found.get("Attributes", "")
    for parameter in parameters(name):
        if not re.search(rf"^    \*{{0,2}}{parameter}:", described, re.MULTILINE):
            missing.append(f"does not describe {parameter!r} in a section {'/'.join(where(name))}")
    if not inspect.isclass(name.value) and not name.is_property:
        if returns(name) and not found.keys() & {"Returns", "Yields"}:
            missing.append("has no section Returns")
        if raises(name) and "Raises" not in found:
            missing.append("raises an InputError, but has no section Raises")
    if not shown(name):
        missing.append("has no Example with >>>" + (", nor has its class one that uses it" if name.owner else ""))
    return missing


def offered(owner: type) -> list[type]:
    """The protocols a class is written for: those of which it has everything."""
    return [one for one in PROTOCOLS if all(hasattr(owner, key) for key in dir(one) if key[0] != "_")]


def where(name: Name) -> tuple[str, ...]:
    return ("Args", "Attributes") if inspect.isclass(name.value) else ("Args",)


def parameters(name: Name) -> list[str]:
    """What a caller gives, or what a value holds."""
    if name.is_property:
        return []
    if is_dataclass(name.value) and getattr(name.value, "__dataclass_params__").init:  # noqa: B009
        return [field.name for field in fields(name.value) if field.name[0] != "_"]
    given = inspect.signature(name.value if inspect.isclass(name.value) else name.function).parameters
    return [key for key in given if key not in {"self", "cls"} and key[0] != "_"]


def returns(name: Name) -> bool:
    return inspect.signature(name.function).return_annotation not in {None, "None", inspect.Signature.empty}


def raises(name: Name) -> bool:
    """Whether a function refuses something itself, or has it checked."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(name.function)))
    nodes = list(ast.walk(tree))
    refused = any(isinstance(node, ast.Raise) and "InputError" in ast.unparse(node) for node in nodes)
    return refused or any(isinstance(node, ast.Call) and ast.unparse(node.func)[:7] == "checks." for node in nodes)


def shown(name: Name) -> bool:
    """Whether an example uses it: its own, or one of its class."""
    if doctest.DocTestParser().get_examples(name.doc):
        return True
    if name.owner is None:
        return False
    examples = doctest.DocTestParser().get_examples(inspect.cleandoc(name.owner.__doc__ or ""))
    code = " ".join(one.source for one in examples)
    return re.search(rf"\.{name.path.rpartition('.')[2]}\b", code) is not None


def failures(name: Name) -> str:
    """What the examples of a name print instead of what they say they print; "" where all is well."""
    test = doctest.DocTestParser().get_doctest(name.doc, {}, name.path, None, None)
    said: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE, verbose=False)
    runner.run(test, out=said.append)
    return "".join(said)
