"""The reference pages of the site, made from the code: names of `faultlines` and `faultlines.results`, commands, JSON.

mkdocs calls `on_config` and `on_files`; everything else is plain text from the library as it is.
"""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

import faultlines as fl
from faultlines import results
from faultlines.cli import streams
from faultlines.cli.commands import app
from faultlines.cli.options import WHOLE_HELP

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

HERE = Path(__file__).parent
# The folders of the library in the order in which data walk through them, as pages; a folder that is not named here
# gets a page under its own name.
TITLES = {
    "analyses": "Analyses",
    "results": "Results",
    "estimates": "Estimates",
    "metrics.experiment": "Metrics of experiments",
    "metrics.population": "Metrics of one population",
    "metrics.model": "Metrics of models",
    "metrics": "Metrics of your own",
    "rows": "Rows and groups",
    "core": "Comparisons and the tree",
    "guarantees": "Guarantees",
    "integrations": "Integrations",
    "simulate": "Simulated data",
    "errors": "Errors",
}
FIRST = ("cluster", "audit", "certify", "confirm", "power", "cluster_many", "self_check", "Monitor", "Estimates")
FIRST_RESULTS = ("results.Result", "results.Clustering", "results.Cluster")


# ----------------------------------------------------------------------------------------------------- public names


def value_of(name: str) -> Any:
    """What a public name stands for; those of results begin with `results.`."""
    return getattr(results, name.removeprefix("results.")) if name.startswith("results.") else getattr(fl, name)


def defined_in(name: str) -> str:
    """The module that defines a public name, without the package."""
    value = value_of(name)
    module = value.__name__ if inspect.ismodule(value) else str(value.__module__)
    return module.removeprefix("faultlines.")


def title_of(module: str) -> str:
    """The page a module belongs to."""
    folder = module.partition(".")[0]
    return TITLES.get(module) or TITLES.get(folder) or folder.capitalize()


def public_names() -> dict[str, list[str]]:
    """Every public name under the title of its page."""
    pages: dict[str, list[str]] = {title: [] for title in TITLES.values()}
    first = {name: place for place, name in enumerate(FIRST + FIRST_RESULTS)}
    names = [*fl.__all__, *(f"results.{name}" for name in results.__all__)]
    for name in sorted(names, key=lambda name: (first.get(name, len(first)), name.lower(), name)):
        if name != "__version__":
            title = "Results" if name.startswith("results.") else title_of(defined_in(name))
            pages.setdefault(title, []).append(name)
    return {title: names for title, names in pages.items() if names}


def anchored(name: str) -> str:
    """The entry of one public name: a heading `fl.name`, and its documentation."""
    shown = name.removeprefix("results.") if name.startswith("results.") else f"fl.{name}"
    return f"::: {address(name)}\n    options:\n      heading: {shown}\n      toc_label: {shown}\n"


def file_of(title: str) -> str:
    """The file of a page."""
    return f"reference/{title.lower().replace(' ', '-')}.md"


def page_of(title: str, names: Iterable[str]) -> str:
    """One page of public names."""
    return f"# {title}\n\n" + "\n".join(anchored(name) for name in names)


def summary_of(name: str) -> str:
    """What a public name is, in its own first sentence."""
    words = inspect.cleandoc(value_of(name).__doc__ or "").split("\n\n")[0].replace("\n", " ")
    return words.replace("|", "\\|")


def index_page(pages: Mapping[str, Iterable[str]]) -> str:
    """All public names on one page, each with its first sentence."""
    lines = ["# Reference", ""]
    lines += ["`import faultlines as fl` has what you call, `faultlines.results` what it returns.", ""]
    lines += ["[Command line](command-line.md) · [Exit codes](exit-codes.md) · [JSON](json.md)", ""]
    for title, names in pages.items():
        here = file_of(title).removeprefix("reference/")
        lines += [f"## {title}", "", "| name | what it is |", "|---|---|"]
        lines += [f"| [`fl.{name}`]({here}#{address(name)}) | {summary_of(name)} |" for name in names]
        lines.append("")
    return "\n".join(lines)


def address(name: str) -> str:
    """Where mkdocstrings puts a public name on its page."""
    module = f"faultlines.{defined_in(name)}"
    return module if name == "simulate" else f"{module}.{name.removeprefix('results.')}"


# --------------------------------------------------------------------------------------------------- command line


def commands() -> dict[str, Any]:
    """The commands by name, as typer makes them."""
    found: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    return found


def command_page() -> str:
    """Every command with its help, as `--help-all` prints it."""
    about = "The text of `faultlines COMMAND --help-all`; `--help` shows the options most people need."
    lines = ["# Command line", "", about, ""]
    lines += ["| command | does |", "|---|---|"]
    for name, command in commands().items():
        lines.append(f"| [`faultlines {name}`](#faultlines-{name}) | {command.get_short_help_str(200)} |")
    for name, command in commands().items():
        lines += ["", f"## faultlines {name}", "", "```text", help_of(name, command), "```"]
    return "\n".join([*lines, ""])


def help_of(name: str, command: Any) -> str:
    """The help of a command, a hundred characters wide."""
    root: Any = typer.main.get_command(app)
    parent = root.context_class(root, info_name="faultlines")
    context = command.context_class(command, parent, name, terminal_width=100)
    context.meta[WHOLE_HELP] = True
    return str(command.get_help(context)).strip()


EXIT_CODES = """# Exit codes

stdout carries the result, stderr one line about what failed; the exit code is the verdict.

| exit code | name | means |
|---|---|---|
{rows}

Which option makes a gate of a command: [CI gates](../certify.md#ci-gates).
"""


def exit_codes() -> dict[str, int]:
    """Exit codes by their names in the code."""
    return {name: value for name, value in vars(streams).items() if name.isupper() and isinstance(value, int)}


def exit_page() -> str:
    """Exit codes: the names in the code, and what the code says of them."""
    words = inspect.cleandoc(streams.__doc__ or "").rpartition("\n\n")[2].replace("\n", " ")
    parts = re.split(r"(?:^|(?<=\. ))(\d+): ", words)
    said = {int(code): text.strip() for code, text in zip(parts[1::2], parts[2::2], strict=True)}
    rows = [f"| {value} | {name.lower().replace('_', ' ')} | {said[value]} |" for name, value in exit_codes().items()]
    return EXIT_CODES.format(rows="\n".join(rows))


# ----------------------------------------------------------------------------------------------------------- JSON


JSON = """# JSON of results

What `to_json()`, `to_dict()` and `--json OUT` write, kind by kind. Every kind has a JSON Schema, which a test holds
against results of many kinds. Keys may be added in later versions; none changes its meaning.

{tables}
"""
KINDS = {
    "result": "Several `--metric` make one object with `headline`, `correction`, `alpha`, `sample_ratio` (the worst), "
    "`overview` (one row per metric) and `metrics`, a list of these.",
    "audit": "",
    "certificate": "",
    "confirmation": "",
    "power": "",
    "self_check": "",
    "srm": "",
    "impact": "",
    "many": "",
    "monitor": "`STATE.json`, in which a monitor is kept from look to look, is for `fl.Monitor.load` alone.",
}


def json_page() -> str:
    """The JSON of every kind of result, key by key, from its schema."""
    lines: list[str] = []
    for kind, more in KINDS.items():
        schema = json.loads((HERE / "reference" / f"{kind}.schema.json").read_text(encoding="utf-8"))
        told = f"{schema['description']} [JSON Schema]({kind}.schema.json). {more}".strip()
        lines += ["", f"## {kind.capitalize()}", "", told, "", *key_table(schema["properties"])]
        for key, inner in schema["properties"].items():
            if keys := inner.get("items", inner).get("properties"):
                lines += ["", f"### {key} of a {kind}", "", *key_table(keys)]
    return JSON.format(tables="\n".join(lines).strip())


def key_table(properties: Mapping[str, Any]) -> list[str]:
    """Keys with their types and meanings."""
    lines = ["| key | type | meaning |", "|---|---|---|"]
    for key, told in properties.items():
        lines.append(f"| `{key}` | {type_of(told)} | {told.get('description', '')} |")
    return lines


def type_of(told: Mapping[str, Any]) -> str:
    """The type of a value in words."""
    if "anyOf" in told:
        return " or ".join(dict.fromkeys(type_of(one) for one in told["anyOf"]))
    kinds: list[str] = told["type"] if isinstance(told["type"], list) else [told["type"]]
    words = {"array": "list", "string": "text", "integer": "whole number", "boolean": "true or false"}
    return " or ".join(words.get(kind, kind) for kind in kinds)


# --------------------------------------------------------------------------------------------------------- for mkdocs


def pages() -> dict[str, tuple[str, str]]:
    """Every generated page by its file: its title and its text."""
    named = public_names()
    made = {"reference/index.md": ("All names", index_page(named))}
    made |= {file_of(title): (title, page_of(title, names)) for title, names in named.items()}
    made["reference/command-line.md"] = ("Command line", command_page())
    made["reference/exit-codes.md"] = ("Exit codes", exit_page())
    made["reference/json.md"] = ("JSON of results", json_page())
    return made


def on_config(config: Any) -> Any:
    """Put the generated pages behind the written ones."""
    named = set(re.findall(r"[\w/.-]+\.md", json.dumps(config.nav)))
    written = sorted(path.relative_to(HERE).as_posix() for path in HERE.rglob("*.md"))
    for section in config.nav:
        section.get("How-to", []).extend(page for page in written if page not in named)  # written since, by others
    config.nav.append({"Reference": [{title: file} for file, (title, _) in pages().items()]})
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the generated pages."""
    from mkdocs.structure.files import File

    for file, (_, text) in pages().items():
        files.append(File.generated(config, file, content=text))
    return files


# ------------------------------------------------------------------------------------------- tables of other pages

INCLUDED = re.compile(r"<!-- include: (?P<page>[\w/.-]+)#(?P<heading>[\w-]+) (?P<number>\d+) -->")


def slug(heading: str) -> str:
    """The address of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def table_of(page: str, heading: str, number: int) -> str:
    """The n-th table under a heading of a page.

    Raises:
        LookupError: If there is none: the build must fail, not go without.
    """
    parts = re.split(r"^#+ (.+)$", (HERE / page).read_text(encoding="utf-8"), flags=re.MULTILINE)
    below = {slug(title): text for title, text in zip(parts[1::2], parts[2::2], strict=True)}
    tables = re.findall(r"(?:^\|.*\n)+", below.get(heading, ""), flags=re.MULTILINE)
    if len(tables) < number:
        raise LookupError(f"{page}#{heading} has {len(tables)} tables, number {number} is asked for")
    return str(tables[number - 1])


def with_tables(text: str, file: str) -> str:
    """A page with the tables it takes from others, their links led from here."""
    up = "../" * file.count("/")

    def taken(found: re.Match[str]) -> str:
        page = found["page"]
        table = table_of(page, found["heading"], int(found["number"]))
        return re.sub(r"\]\((#?)(?=[\w/.#-])", lambda link: f"]({up}{page if link[1] else ''}{link[1]}", table)

    return INCLUDED.sub(taken, text)


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Fill in tables that a page takes from others; take out comments, at which Markdown would break a paragraph."""
    return re.sub(r"<!--.*?-->", "", with_tables(markdown, page.file.src_uri), flags=re.DOTALL)


# --------------------------------------------------------------------------------------- from the text to the reference

CODE = re.compile(r"(?<!\">)<code>(?P<text>fl\.(?P<name>\w+)[^<]*)</code>")


def linked(html: str, file: str) -> str:
    """A page on which the first mention of every public name leads to its entry."""
    up, seen = "../" * file.count("/"), set[str]()
    places = {name: file_of(title).replace(".md", ".html") for title, names in public_names().items() for name in names}

    def led(found: re.Match[str]) -> str:
        name = found["name"]
        if name in seen or name not in places:
            return found[0]
        seen.add(name)
        return f'<a href="{up}{places[name]}#{address(name)}">{found[0]}</a>'

    return CODE.sub(led, html)


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """Lead from mentions of public names to the reference, and set subscripts."""
    return html if page.file.src_uri.startswith("reference/") else subscripted(linked(html, page.file.src_uri))


# --------------------------------------------------------------------------------------------------------- subscripts

KEPT = re.compile(r"(<pre.*?</pre>|<code.*?</code>|<[^>]+>)", re.DOTALL)
SUBSCRIPT = re.compile(
    r"(?<![\w.])([A-Za-zα-ωΑ-Ω]̄?|se²?|LR|min|χ²)_(?:(dof|[A-Za-z0-9₀ε])|\{([^}]+)\})(?![A-Za-z0-9_])"
)


def subscripted(html: str) -> str:
    """θ_i in running text as θ with a small i; code stays as it is."""
    parts = KEPT.split(html)
    for i in range(0, len(parts), 2):
        parts[i] = SUBSCRIPT.sub(lambda found: f"{found[1]}<sub>{found[2] or found[3]}</sub>", parts[i])
    return "".join(parts)
