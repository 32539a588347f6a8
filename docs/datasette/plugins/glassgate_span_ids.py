# ruff: noqa: INP001 - Datasette loads a plugin as a file of its own
"""Gives Datasette the trace and span ids that `glassgate query` gives: the views pass_spans, decision_spans and others.

Datasette must run in the Python that Glassgate is installed in.
"""

import sqlite3

from datasette import hookimpl

from store.span_ids import register


@hookimpl
def prepare_connection(conn: sqlite3.Connection, database: str) -> None:
    """Register functions and temporary views on a connection to a database of Glassgate's."""
    del database
    if conn.execute("SELECT 1 FROM sqlite_master WHERE name = 'alarm_kinds'").fetchone():
        register(conn)
