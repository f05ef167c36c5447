"""parquet files as DuckDB reads them: columns by the names the files have, folders are only folders."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from faultlines.errors import InputError, shorten
from faultlines.sources import duck, paths

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    import duckdb

_NUMBERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "FLOAT", "DOUBLE", "DECIMAL")
_TIMES = ("DATE", "TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS")


class _Layout(NamedTuple):
    """The schema of a file."""

    names: tuple[str, ...]
    nulls: frozenset[str]  # columns without a type, of which every row is null
    details: tuple[tuple[object, ...], ...]


def parquet_rows(
    engine: duckdb.DuckDBPyConnection,
    files: Sequence[Path],
    columns: Sequence[str],
    keys: Mapping[str, str],
    check: Callable[[Sequence[str]], None],
) -> tuple[duckdb.DuckDBPyRelation, dict[str, str]]:
    """Rows of parquet files; and the wanted columns by name, with what they are called in these rows.

    Files with other schemas are read apart, so that a column is found in each of them by its own name.

    Args:
        engine: The connection.
        files: The files.
        columns: The columns that are wanted.
        keys: Column → parameter, for those that name things: they must be of one kind in all files.
        check: Refuses names of columns that lack one.

    Raises:
        InputError: If a file lacks a column, or has something of another kind in it.
    """
    alike: dict[_Layout, list[Path]] = {}
    for path in files:
        alike.setdefault(_layout(engine, path), []).append(path)
    names = {column: f"p{i}" for i, column in enumerate(dict.fromkeys(columns))}
    queries, first = [], dict[str, str]()
    for layout, some in alike.items():
        try:
            check(layout.names)
        except InputError as error:
            if some[0] == files[0]:
                raise
            raise InputError(paths.shown(some[0]), f"{error.parameter}: {error.problem}", error.remedy) from error
        query = _query(engine, layout, some, names)
        kinds = dict(zip(names, map(str, engine.sql(query).types), strict=True))
        for column, parameter in keys.items():
            if column in layout.nulls:
                continue
            known = first.setdefault(column, kinds[column])
            if _kind(known) != _kind(kinds[column]):
                raise InputError(
                    paths.shown(some[0]),
                    f"{parameter}={shorten(column)}: holds {kinds[column]}, but {known} in a file before it",
                    "Give files in which the column has one type.",
                )
        queries.append(query)
    return engine.sql(" UNION ALL ".join(queries)), names


def _query(engine: duckdb.DuckDBPyConnection, layout: _Layout, files: Sequence[Path], names: Mapping[str, str]) -> str:
    """The wanted columns of files with one schema, which is that of the first; folders (country=DE/) have no say."""
    rows = f"read_parquet({duck.listed([duck.pattern(path) for path in files])}, hive_partitioning=false)"
    # DuckDB renames one of two columns that differ in case only; their order stays.
    found = engine.sql(f"SELECT * FROM {rows}").columns
    called = dict(zip(layout.names, found, strict=True)) if len(layout.names) == len(found) else {}
    picks = [f"{duck.quoted(called.get(column, column))} AS {name}" for column, name in names.items()]
    return f"SELECT {', '.join(picks)} FROM {rows}"


def _kind(dtype: str) -> str:
    """What columns of a type hold; those of one kind name the same things."""
    plain = dtype.removeprefix("U")
    if plain.startswith(_NUMBERS) and not plain.endswith("]"):
        return "number"
    return "time" if dtype in _TIMES else dtype


def _layout(engine: duckdb.DuckDBPyConnection, path: Path) -> _Layout:
    """The schema as the file has it: the first entry is the root, and only its children are columns."""
    wanted = "name, num_children, type, converted_type, logical_type, scale, precision"
    schema = engine.sql(f"SELECT {wanted} FROM parquet_schema({duck.pattern(path)})").fetchall()
    names, nulls, inside = [], set(), 0
    for name, children, _, _, logical, *_ in schema[1:]:
        if inside:
            inside += (children or 0) - 1
        else:
            names.append(name)
            nulls |= {name} if "NullType" in str(logical) else set()
            inside = children or 0
    return _Layout(tuple(names), frozenset(nulls), tuple(schema[1:]))
