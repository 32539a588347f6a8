"""Targets: what a person types: settings, times, sizes, bounds, addresses, orders, filters, SQL, command lines."""

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final
from unittest import mock

import click
import msgspec
from hypothesis import strategies as st
from mutate import SCALARS, bytes_like, text_like
from quiet import quietly
from target import Aim, Room, target

from controller.engines.plugin.settings import check_settings, read_settings
from controller.knobs import KNOB_SPECS, Knobs, parse_bytes
from controller.limits import Setting, effective
from controller.settings import SETTING_NAMES
from estimator.errors import GlassgateError, KnobError
from store.metric_export import prometheus_address
from store.named import NAMED
from store.otel_environment import check_environment
from store.queries import run_query
from store.scrape import parse_address
from ui.app.commands import APP_COMMANDS
from ui.app.jump import parse_jump
from ui.app.moments import moment_of_day
from ui.app.web import parse_web_address
from ui.cli import COMMANDS, cli
from ui.commands.whatif import read_changes
from ui.saving import save_knobs
from ui.settings import load_settings
from ui.view.snapshot import Ask
from ui.view.source import Source
from ui.view.view import View
from ui.whatif.goal import read_bound
from ui.whatif.recorded import read_recorded
from ui.whatif.space import space_of
from ui.whatif.span import read_span

TOML: Final = b"""# a comment
home = "~/runs"
max_requests = 8
max_buffer_bytes = "4GiB"
chunked_prefill_size = 8192
page_size = 64
enforce = false
collector = "off"
prometheus = "127.0.0.1:9464"
smoke = "warn"
max_extend_tokens = "off"
load_back_threshold = 1e1
"""
WORDS: Final = (
    "8", "65_536", "4GiB", "1.5 GB", "off", "on", "-1", "none", "true", "warn", "require", "127.0.0.1:9464", ":0",
    "~", "~x/y",
    "10m", "+90s", "1h30m", "12:03", "12:03:10", "2026-03-01T12:03", "2026-03-01T12:03:10.5+01:00", "-30", "+5m", "0",
    "max_requests=16", "ttft_p99<5s", "peak_buffer<4GiB", "refused<=0", "max_requests=4:64", "pass 18204", "at +5m",
    "next kv_capacity", "speed 10", "run 7f3a", "request s0.t0", "live", "!kv", "s0", "140x45", "[::1]:80",
    "localhost",
    "http://a:b@c:1/d?e#f", "512k", "4M", "unbounded", "500MiB", "9" * 400, "1e400", "1e999s", "9" * 5000, "٣", "²",
    "9999-12-31T23:59:59", "0001-01-01T00:00", "999999999999h",
)  # fmt: skip


def words() -> st.SearchStrategy[str]:
    """What may stand where one word is asked for."""
    return text_like(*WORDS)


def each_reads(*readers: Callable[[], object]) -> None:
    """Let each reader have its turn; then raise the first failure, one that is no Glassgate error before the others."""
    failures: list[Exception] = []
    for read in readers:
        try:
            read()
        except Exception as error:  # noqa: BLE001 - told once all have read
            failures.append(error)
    if failures:
        raise min(failures, key=lambda each: isinstance(each, GlassgateError))


@target("configuration file", cost=6, is_bytes=True)
def configuration_file(room: Room) -> Aim:
    """glassgate.toml, as the commands, the plug-ins and `--save` read it."""

    def parse(content: bytes) -> None:
        path = room.file("glassgate.toml", content)
        with mock.patch.dict(os.environ, {"GLASSGATE_CONFIG": str(path)}):
            each_reads(read_settings, check_settings, lambda: load_settings().knobs({}), _saved)

    return Aim(bytes_like(TOML), parse)


def _saved() -> None:
    save_knobs({"max_requests": "9"})


@target("environment", cost=4)
def environment(room: Room) -> Aim:
    """Settings in the environment, beside an engine's own flags of the same meaning."""
    del room
    names = st.sampled_from([f"GLASSGATE_{name.upper()}" for name in SETTING_NAMES])
    text = words().map(
        lambda each: each.replace("\0", "").encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    )
    scalar = st.sampled_from([each for each in SCALARS if not isinstance(each, list | dict)])
    flags = st.dictionaries(st.sampled_from([spec.name for spec in KNOB_SPECS]), scalar, max_size=2)

    def parse(given: tuple[dict[str, str], dict[str, Any]]) -> None:
        variables, own = given
        aliases = {name: (value, f"--{name}") for name, value in own.items()}
        settings = None
        with suppress(KnobError):
            settings = read_settings(aliases, {}, variables)
        if settings is not None:
            effective(settings.knobs, Setting())
        with mock.patch.dict(os.environ, variables):
            knobs = load_settings().knobs({})
        assert settings is None or own or settings.knobs == knobs

    return Aim(st.tuples(st.dictionaries(names, text, max_size=3), flags), parse)


@target("knob values")
def knob_values(room: Room) -> Aim:
    """A knob's value from JSON, a file, an option or an engine's flag."""
    del room
    value = st.one_of(words(), st.sampled_from(SCALARS), st.integers(), st.floats(), st.booleans())
    inputs = st.dictionaries(st.sampled_from([spec.name for spec in KNOB_SPECS]), value, min_size=1, max_size=2)
    return Aim(inputs, lambda given: effective(Knobs.parse(given), Setting(context_parallel=True, data_parallel=2)))


@target("moments of a run", cost=2)
def moments(room: Room) -> Aim:
    """`--since`, `--until` of what-if, `--at` and the screen's times."""
    recorded = read_recorded(room.database, None)
    source = Source.open(str(room.database), room.folder)
    view = View(source)
    head = view.answer(Ask(), whole=True).head
    view.close()

    def parse(text: str) -> None:
        with suppress(ValueError):
            at_ns = moment_of_day(head, text)
            assert abs(at_ns) < 1 << 63
        span = read_span(recorded, text, None)
        assert 0 <= span.since_ns < 1 << 63

    return Aim(words(), parse)


@target("sizes, bounds, ranges, addresses, orders")
def short_words(room: Room) -> Aim:
    """Every other word that has a form of its own. Each reader gets each word."""
    recorded = read_recorded(room.database, None)

    def parse(text: str) -> None:
        each_reads(
            lambda: parse_bytes(text), lambda: read_bound(text), lambda: read_bound(f"ttft_p99<{text}"),
            lambda: read_bound(f"peak_buffer<{text}"), lambda: read_changes((text,)), lambda: parse_web_address(text),
            lambda: parse_address(text), lambda: space_of(recorded, Knobs(), [f"max_requests={text}"]),
            lambda: space_of(recorded, Knobs(), [f"max_buffer_bytes={text}"]), lambda: space_of(recorded, Knobs(),
            [text]),
            lambda: prometheus_address({"OTEL_EXPORTER_PROMETHEUS_HOST": text,
            "OTEL_EXPORTER_PROMETHEUS_PORT": text}),
            lambda: check_environment(dict.fromkeys(OTEL, text)), lambda: _jumped(text),
        )  # fmt: skip

    return Aim(words(), parse)


def _jumped(text: str) -> None:
    with suppress(ValueError):
        parse_jump(text, APP_COMMANDS)


OTEL: Final = (
    "OTEL_TRACES_SAMPLER", "OTEL_METRIC_EXPORT_INTERVAL", "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT",
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TIMEOUT", "OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_CERTIFICATE",
)  # fmt: skip


@target("what the screen is asked", cost=10)
def screen_asks(room: Room) -> Aim:
    """Filters, pages, moments and seeks, as keys and orders make them."""
    view = View(Source.open(str(room.database), room.folder))
    fields = {
        "at_ns": st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)),
        "waiting_filter": words(),
        "waiting_offset": st.integers(-5, 2**40),
        "rows": st.integers(-5, 2**40),
        "open_pass": st.one_of(st.none(), st.integers(0, 10**18)),
        "passes_before": st.one_of(st.none(), st.integers(0, 10**18)),
        "request": words(),
        "pass_filter": words(),
        "log_filter": words(),
        "faults_only": st.booleans(),
        "seek": st.sampled_from(["", "pass", "stop", "knob", "fault"]),
        "seek_back": st.booleans(),
        "seek_gate": words(),
    }
    inputs = st.fixed_dictionaries({}, optional=fields)
    panels = frozenset({"live", "waiting", "gates", "hits", "buffers", "knobs", "log"})

    def parse(given: dict[str, Any]) -> None:
        snapshot = view.answer(msgspec.structs.replace(Ask(panels=panels), **given), whole=True)
        msgspec.to_builtins(snapshot, order="deterministic")

    return Aim(inputs, parse)


SQL: Final = (
    "SELECT gate, count(*) FROM v_decisions GROUP BY gate", "SELECT * FROM passes WHERE run = :run LIMIT :limit",
    "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c",
    "PRAGMA table_info(passes)", "ATTACH 'x.db' AS x", "INSERT INTO runs DEFAULT VALUES", "VACUUM INTO 'y.db'",
    "DELETE FROM runs",
    "CREATE TEMP TABLE t AS SELECT * FROM passes", "SELECT load_extension('x')",
    "SELECT zeroblob(1e9), randomblob(99999999)",
    "SELECT printf('%999999999d', 1)", "SELECT json_extract('{}', '$'), x'00', 1e999, 0x7f, ?, ?9, @a, $b",
    "EXPLAIN SELECT 1",
    "SELECT group_concat(a.id) FROM requests a, requests b, requests c", "SELECT 1; DROP TABLE runs",
    "/* */ VALUES(1),(2)",
    "SELECT pass_trace_id('a', 9223372036854775807, -1), queue_span_id(NULL, 1.5, x'00', 'a')", "SELECT '\x00'",
    "SELECT replace(hex(zeroblob(100000)), '0', 'aa') LIKE '%a%b%'", "SELECT 'a' GLOB '[^'", *NAMED,
)  # fmt: skip


@target("SQL of query", cost=4)
def sql(room: Room) -> Aim:
    """SQL, named queries and their parameters. Whatever is asked, the database stays as it is."""
    before = room.database.read_bytes()
    strays = set(room.folder.iterdir())
    text = text_like(*SQL)
    limit = st.one_of(st.none(), st.sampled_from([0, 1, 20, 2**31, 2**40, -1]))
    run = st.one_of(st.none(), words())

    def parse(given: tuple[str, str | None, int | None]) -> None:
        what, of_run, most = given
        try:
            answered = run_query(room.database, what, run=of_run, limit=most, seconds=0.2)
        finally:
            assert room.database.read_bytes() == before
            assert set(room.folder.iterdir()) - strays <= set()
        answered.as_dicts()

    return Aim(st.tuples(text, run, limit), parse)


NOT_RUN: Final = frozenset({"demo", "replay", "tune", "bench", "collect", "smoke", "doctor", "whatif"})
"""Commands whose arguments are read and which are then not run: they take their time, or look at the machine."""


def options_of(command: click.Command) -> list[str]:
    """Every option of a command."""
    return [
        name for each in command.params if isinstance(each, click.Option) for name in (*each.opts, *each.secondary_opts)
    ]


@target("command lines", cost=10)
def command_lines(room: Room) -> Aim:
    """Options and arguments of every command, over a finished run."""
    root = click.Context(cli)
    paths: list[tuple[list[str], click.Command]] = []
    for name in COMMANDS:
        command = cli.get_command(root, name)
        assert command is not None
        if isinstance(command, click.Group):
            paths += [([name, sub], command.commands[sub]) for sub in command.commands]
        else:
            paths.append(([name], command))
    paths = [(path, command) for path, command in paths if path != ["db", "prune"]]

    @st.composite
    def line(draw: Any) -> tuple[list[str], list[str]]:
        path, command = draw(st.sampled_from(paths))
        known = [each for each in options_of(command) if each not in UNTRIED]
        word = st.one_of(words(), st.sampled_from([str(room.database), str(room.run), room.run.name[:4], "-", "s0.t0"]))
        option = st.tuples(st.sampled_from(known or ["--json"]), word).map(lambda pair: f"{pair[0]}={pair[1]}")
        alone = st.sampled_from(known or ["--json"])
        return path, draw(st.lists(st.one_of(option, alone, word), max_size=4))

    def parse(given: tuple[list[str], list[str]]) -> None:
        path, rest = given
        rest = [each.encode("utf-8", "replace").decode().replace("\0", "") for each in rest]

        def call() -> None:
            with suppress(click.exceptions.Exit, click.ClickException, click.Abort):
                if path[0] in NOT_RUN:
                    command = next(each for known, each in paths if known == path)
                    command.make_context(path[-1], rest)
                else:
                    cli.main([*path, *rest], standalone_mode=False)

        quietly(call)

    return Aim(line(), parse)


UNTRIED: Final = frozenset(
    {"--web", "--screenshot", "--output", "-o", "--wait", "--carry-forward", "--storage", "--seconds"}
)
"""Options that would write, serve or wait."""
