"""Metadata for Datasette: descriptions of every table, view and column, and the named queries ready to run.

`python -m store.datasette` writes docs/datasette/metadata.yml.
"""

from __future__ import annotations

import json
import re
import sqlite3
from pathlib import Path
from typing import Any, Final

from sqlite_utils import Database

from store.descriptions import TABLES, describe
from store.named import NAMED
from store.queries import DEFAULT_ROWS
from store.schema import MIGRATIONS

FILE: Final = Path(__file__).resolve().parents[1] / "docs" / "datasette" / "metadata.yml"

_LATEST: Final = "(SELECT id FROM runs ORDER BY coalesce(wall_ns, 0) DESC, id DESC LIMIT 1)"
_FACETS: Final = {
    "v_decisions": ["outcome", "gate", "reason", "host_hit"],
    "v_passes": ["closed_gate", "closed_reason"],
    "v_alarms": ["alarm", "state"],
    "v_requests": ["ended"],
    "checks": ["gate", "verdict"],
    "knobs": ["knob", "state"],
    "losses": ["reason"],
}
_HIDDEN: Final = ("alarm_watch", "cursors", "pruned_requests", "_sqlite_migrations")


def metadata(database: str = "glassgate") -> dict[str, Any]:
    """The metadata for a database of that name, as Datasette reads it."""
    tables: dict[str, Any] = {}
    for name, columns in _columns().items():
        tables[name] = {"description": TABLES[name], "columns": {each: describe(name, each) for each in columns}}
        if name in _FACETS:
            tables[name]["facets"] = _FACETS[name]
    for name in _HIDDEN:
        tables.setdefault(name, {})["hidden"] = True
    queries = {
        query.name: {"title": query.name, "description": query.description, "sql": canned(query.sql)}
        for query in NAMED.values()
    }
    return {
        "title": "Glassgate",
        "description": "What prefill admission decided, and why. Leave run empty for the run begun last.",
        "databases": {database: {"tables": tables, "queries": queries}},
    }


def canned(sql: str) -> str:
    """A named query's SQL where `run` and `limit` come from a form: texts, which may be empty."""
    sql = re.sub(r":run\b", f"coalesce(CAST(nullif(:run, '') AS INTEGER), {_LATEST})", sql)
    return re.sub(r":limit\b", f"coalesce(CAST(nullif(:limit, '') AS INTEGER), {DEFAULT_ROWS})", sql)


def as_yaml(value: dict[str, Any], indent: int = 0) -> str:
    """Nested dicts of texts as YAML; SQL keeps its lines."""
    lines = []
    margin = "  " * indent
    for key, each in value.items():
        if isinstance(each, dict):
            lines.append(f"{margin}{key}:\n{as_yaml(each, indent + 1)}")
        elif isinstance(each, str) and "\n" in each:
            body = "\n".join(f"{margin}  {line}".rstrip() for line in each.splitlines())
            lines.append(f"{margin}{key}: |-\n{body}\n")
        else:
            lines.append(f"{margin}{key}: {json.dumps(each, ensure_ascii=False)}\n")
    return "".join(lines)


def page() -> str:
    """The file's text."""
    return "# Generated from the code by `python -m store.datasette`; do not edit.\n" + as_yaml(metadata())


def _columns() -> dict[str, list[str]]:
    """The columns of every table and view of the present schema."""
    connection = sqlite3.connect(":memory:")
    try:
        for _, migrate in MIGRATIONS:
            migrate(Database(connection))
        names = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")]
        return {
            name: [row[1] for row in connection.execute(f"PRAGMA table_xinfo({name})")]
            for name in names
            if not name.startswith(("sqlite_", "_"))
        }
    finally:
        connection.close()


def main() -> None:
    """Write the file."""
    FILE.parent.mkdir(parents=True, exist_ok=True)
    FILE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
