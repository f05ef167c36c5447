"""parquet files as DuckDB reads them: columns by the names the files have, folders are only folders."""

from __future__ import annotations

from typing import TYPE_CHECKING

from faultlines.sources import duck

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import duckdb


def parquet_query(files: Sequence[Path]) -> str:
    """The rows of parquet files; types are united over the files, and folders (country=DE/) have no say."""
    listed = duck.listed([duck.pattern(path) for path in files])
    return f"SELECT * FROM read_parquet({listed}, union_by_name=true, hive_partitioning=false)"


def parquet_rows(
    engine: duckdb.DuckDBPyConnection, files: Sequence[Path]
) -> tuple[duckdb.DuckDBPyRelation, dict[str, str]]:
    """Rows of parquet files; and their columns by name, with what DuckDB calls them."""
    rows = engine.sql(parquet_query(files))
    return rows, _names(engine, files, rows.columns)


def _names(engine: duckdb.DuckDBPyConnection, files: Sequence[Path], found: Sequence[str]) -> dict[str, str]:
    """Columns by name, with what DuckDB calls them: it renames one of two that differ in case."""
    if len(files) > 1 or not any(name[-1:].isdigit() and "_" in name for name in found):
        return {name: name for name in found}
    # The schema as the file has it: the first entry is the root, and only its children are columns.
    schema = engine.sql(f"SELECT name, num_children FROM parquet_schema({duck.pattern(files[0])})").fetchall()
    names, inside = [], 0
    for name, children in schema[1:]:
        if inside:
            inside += (children or 0) - 1
        else:
            names.append(name)
            inside = children or 0
    return dict(zip(names, found, strict=True)) if len(names) == len(found) else {name: name for name in found}
