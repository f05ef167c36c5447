"""What documentation is held to: docstrings of public names, and examples of pages with the output they show.

`python -m tests.documented --write [PAGE …]` runs the examples of README and docs and writes the output they print now
below them; without `--write` it names the examples whose output differs.
"""

from __future__ import annotations

import ast
import contextlib
import doctest
import inspect
import io
import os
import re
import shlex
import sys
import tempfile
import textwrap
from dataclasses import dataclass, fields, is_dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import faultlines as fl
from faultlines import results
from faultlines.cli import streams
from faultlines.core.comparison import Comparison
from faultlines.guarantees.base import Guarantee
from faultlines.results.protocol import TabularResult
from tests.cli.running import Done, run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
# A block of code with the block of text below it, which is what it prints.
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```\n(?:\n?```text\n(.*?)^```\n)?", re.DOTALL | re.MULTILINE)
EXIT_CODES = {streams.DONE, streams.SPLIT, streams.UNUSABLE, streams.CANNOT_TELL}
# What a guarantee or a comparison of one's own has to offer is said once, where it is asked for.
PROTOCOLS = (Guarantee, Comparison, results.Result, TabularResult)
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
    """Every public name of `faultlines` and `faultlines.results` with those of its members."""
    names = {f"results.{name}": named(f"results.{name}", getattr(results, name)) for name in results.__all__}
    for name in fl.__all__:
        value = getattr(fl, name)
        if isinstance(value, ModuleType):
            inside = {
                key: member
                for key, member in vars(value).items()
                if getattr(member, "__module__", "") == value.__name__
            }
            names |= {f"{name}.{key}": named(f"{name}.{key}", inside[key]) for key in inside if key[0] != "_"}
        elif callable(value):
            names[name] = named(name, value)
    return {name: members for name, members in names.items() if members}


def named(path: str, value: Any) -> list[Name]:
    """A function, or a class with its public members; nothing for other values, such as the name of a type."""
    if not inspect.isclass(value):
        return [Name(path, value)] if inspect.isfunction(inspect.unwrap(value)) else []
    return [Name(path, value), *(Name(f"{path}.{key}", member, value) for key, member in members(value))]


def members(owner: type) -> Iterator[tuple[str, Any]]:
    for key in dir(owner):
        value = inspect.getattr_static(owner, key)
        written = Name(key, value).function
        if key[0] != "_" and inspect.isfunction(written) and written.__module__.startswith("faultlines"):
            yield key, value


def sections(doc: str) -> dict[str, str]:
    """The sections of a docstring, by heading; its summary and prose under ''."""
    by_heading, heading = {"": ""}, ""
    for line in doc.splitlines():
        start = re.fullmatch(r"(\w+):", line)
        if start and start[1] in SECTIONS:
            heading = start[1]
            by_heading[heading] = ""
        else:
            by_heading[heading] += line + "\n"
    return by_heading


def problems(name: Name) -> list[str]:
    """What is missing in the documentation of a name."""
    if not name.doc:
        return ["has no docstring"]
    by_heading = sections(name.doc)
    missing = [] if re.match(r"\S.*[.:?]$", by_heading[""].split("\n\n")[0], re.DOTALL) else ["has no summary sentence"]
    if (
        name.owner is not None
        and name.owner not in PROTOCOLS
        and any(hasattr(protocol, name.path.rpartition(".")[2]) for protocol in offered(name.owner))
    ):
        return missing
    described = by_heading.get("Args", "") + by_heading.get("Attributes", "")
    for parameter in parameters(name):
        if not re.search(rf"^    \*{{0,2}}{parameter}:", described, re.MULTILINE):
            missing.append(f"does not describe {parameter!r} in a section {'/'.join(where(name))}")
    if not inspect.isclass(name.value) and not name.is_property:
        if returns(name) and not by_heading.keys() & {"Returns", "Yields"}:
            missing.append("has no section Returns")
        if raises(name) and "Raises" not in by_heading:
            missing.append("raises an InputError, but has no section Raises")
    if not name.is_property and not is_internal(name) and not shown(name):
        missing.append("has no Example with >>>" + (", nor has its class one that uses it" if name.owner else ""))
    return missing


def is_internal(name: Name) -> bool:
    """Whether it is a method of a result that outputs and commands call: described, but without an example."""
    return name.owner is not None and (name.path.startswith("results.") or name.path == "Monitor.check_settings")


def offered(owner: type) -> list[type]:
    """The protocols a class is written for: those of which it has everything."""
    return [protocol for protocol in PROTOCOLS if all(hasattr(owner, key) for key in dir(protocol) if key[0] != "_")]


def where(name: Name) -> tuple[str, ...]:
    return ("Args", "Attributes") if inspect.isclass(name.value) else ("Args",)


def parameters(name: Name) -> list[str]:
    """What a caller gives, or what a value holds."""
    if name.is_property:
        return []
    if is_dataclass(name.value) and getattr(name.value, "__dataclass_params__").init:  # noqa: B009
        return [field.name for field in fields(name.value) if field.name[0] != "_"]
    arguments = inspect.signature(name.value if inspect.isclass(name.value) else name.function).parameters
    return [key for key in arguments if key not in {"self", "cls"} and key[0] != "_"]


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
    code = " ".join(example.source for example in examples)
    return re.search(rf"\.{name.path.rpartition('.')[2]}\b", code) is not None


def failures(name: Name) -> str:
    """What the examples of a name print instead of what they say they print; "" where all is well."""
    test = doctest.DocTestParser().get_doctest(name.doc, {}, name.path, None, None)
    said: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE, verbose=False)
    runner.run(test, out=said.append)
    return "".join(said)


# ---------------------------------------------------------------------------------------------- examples of pages


@dataclass(frozen=True)
class Mismatch:
    """An example of a page that prints something else than the page shows.

    Attributes:
        code: The example.
        shown: What the page shows.
        printed: What the example prints, or the error it ends with.
        start: Where on the page the shown output begins.
        failed: Whether the example ends with an error.
    """

    code: str
    shown: str
    printed: str
    start: int
    failed: bool = False


def mismatches(text: str, name: str, command: Callable[..., Done] = run) -> Iterator[Mismatch]:
    """Run the examples of a page in the working folder, one after the other.

    Args:
        text: The page.
        name: Its name, for tracebacks.
        command: Runs a command.

    Yields:
        Examples that fail, or print something else than the page shows. Examples without shown output must only run.
    """
    names: dict[str, Any] = {}
    for block in BLOCK.finditer(text):
        language, code, shown = block.groups()
        if language == "python":
            try:
                printed = run_code(code, name, names)
            except Exception as error:  # whatever an example raises is what is to be known
                yield Mismatch(code, shown or "", f"{type(error).__name__}: {error}", block.start(2), failed=True)
                continue
            if shown is not None and printed.strip() != shown.strip():
                yield Mismatch(code, shown, printed, block.start(3))
        elif language == "py":  # needs what a test machine does not have; its calls are tested elsewhere
            compile(code, name, "exec")
        elif language == "csv":
            Path("lifts.csv").write_text(code, encoding="utf-8")
        elif language == "console":
            yield from console_mismatches(code, block.start(2), command)


def run_code(code: str, name: str, names: dict[str, Any]) -> str:
    """Run an example and return what it prints."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, name, "exec"), names)
    return printed.getvalue()


def console_mismatches(session: str, start: int, command: Callable[..., Done]) -> Iterator[Mismatch]:
    """Run the lines of a console that start with `$ faultlines`; below each is what it must print."""
    for part in re.finditer(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", session, flags=re.MULTILINE):
        line, shown = part.groups()
        words = shlex.split(line)
        if words[0] != "faultlines":
            continue
        process = command(*words[1:], cwd=Path.cwd())
        printed = process.stdout + process.stderr
        failed = process.returncode not in EXIT_CODES
        if failed or (shown.strip() and printed.strip() != shown.strip()):
            yield Mismatch(line, shown, printed, start + part.start(2), failed)


def rewrite(text: str, changes: list[Mismatch]) -> str:
    """A page with the output that its examples print now, last first so that places stay where they are."""
    for mismatch in reversed(changes):
        if not mismatch.failed:
            end = mismatch.start + len(mismatch.shown)
            blank = "\n" if mismatch.shown.endswith("\n\n") else ""  # before the next command of a console
            text = text[: mismatch.start] + mismatch.printed.strip("\n") + "\n" + blank + text[end:]
    return text


def main(arguments: list[str]) -> int:
    """Compare or rewrite pages, all of them or those that are named."""
    write = "--write" in arguments
    chosen = [Path(argument).resolve() for argument in arguments if argument != "--write"] or PAGES
    failed = 0
    for page in chosen:
        text = page.read_text(encoding="utf-8")
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            changes = list(mismatches(text, page.name))
        if write:
            page.write_text(rewrite(text, changes), encoding="utf-8")
        for mismatch in changes:
            line = text.count("\n", 0, mismatch.start) + 1
            outcome = mismatch.printed.strip() if mismatch.failed else "rewritten" if write else "differs"
            print(f"{os.path.relpath(page, ROOT)}:{line}: {outcome}", flush=True)
        failed += sum(mismatch.failed or not write for mismatch in changes)
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
