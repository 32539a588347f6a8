"""`glassgate ui`: the operator's screen."""

from __future__ import annotations

import os
import sys
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from controller.run_directory import LIVE, RunDirectory, default_base
from controller.settings import as_path, read_given
from controller.whole_file import followed, write_whole
from estimator.errors import NotFoundError, StorageError, UsageError
from ui.options import json_option

if TYPE_CHECKING:
    from ui.app.colours import ThemeName
    from ui.view.snapshot import Ask, Head, Snapshot
    from ui.view.source import Source

WEB_DEFAULT = "127.0.0.1:8000"


@click.command()
@click.argument("record", required=False, metavar="[DB|RUN]")
@click.option("--rank", type=click.IntRange(min=0), help="The rank to look at [default: the lowest].")
@click.option(
    "--at", metavar="TIME", help="Begin at this moment: 12:03:10 (UTC), +5m into the run, -30 before its end."
)
@click.option("--beside", metavar="RUN", help="Show another run or database beside it, and where they part.")
@click.option("--readonly", is_flag=True, help="Turn off every command that asks for a change.")
@click.option("--theme", type=click.Choice(["dark", "light", "plain"]), help="Colours [default: as the terminal is].")
@click.option("--no-colour", "--no-color", "no_colour", is_flag=True, help="The same as --theme plain.")
@click.option(
    "--web",
    metavar="[=HOST:PORT]",
    is_flag=False,
    flag_value=WEB_DEFAULT,
    help=f"Serve the screen to browsers there, by default on {WEB_DEFAULT} (extra `web`).",
)
@click.option("--allow-changes", is_flag=True, help="With --web on an address others reach: let them turn knobs.")
@click.option(
    "--screenshot",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE.svg",
    help="Write the screen to a file and end.",
)
@click.option("--size", default="140x45", show_default=True, metavar="COLUMNSxLINES", help="Size of --screenshot.")
@json_option
def ui(
    *,
    record: str | None,
    rank: int | None,
    at: str | None,
    beside: str | None,
    readonly: bool,
    theme: ThemeName | None,
    no_colour: bool,
    web: str | None,
    allow_changes: bool,
    screenshot: Path | None,
    size: str,
    as_json: bool,
) -> None:
    """Open the operator's screen on a run, live or after the fact, or on a database.

    Without RUN it is the run begun last. Without a terminal it prints a summary. `?` on the screen tells every key.
    """
    theme = "plain" if no_colour else theme
    columns, lines = _size(size)
    if screenshot is not None and screenshot.suffix.lower() != ".svg":
        raise UsageError(f"--screenshot {screenshot} is no SVG file; name one that ends in .svg")
    if beside is not None and (rank is not None or screenshot is not None):
        raise UsageError(
            "--beside goes with neither --rank nor --screenshot; name the folder of the rank, such as 7f3a-1, in place "
            "of the run, and press s on the screen"
        )
    if web is not None:
        _serve(web, record, _arguments(record, rank, at, theme, beside), readonly=readonly, allow_changes=allow_changes)
        return
    with ExitStack() as held:
        source = _open(record, held)
        ask = _ask_for(source, rank)
        other = None if beside is None else _open(beside, held)
        if other is not None and (as_json or (screenshot is None and not on_terminal())):
            if at is not None:
                raise UsageError("--at goes with --beside on the screen alone; without one all of both runs is told")
            _print_beside(source, other, as_json=as_json)
        elif as_json or (screenshot is None and not on_terminal()):
            _print(source, ask, at or "", as_json=as_json)
        elif screenshot is not None:
            _picture(source, ask, screenshot, (columns, lines), theme, at or "")
        else:
            from ui.app.main import run_screen  # noqa: PLC0415 - Textual is for those who look

            run_screen(source, theme=theme, readonly=readonly, ask=ask, at=at or "", beside=other)


def on_terminal() -> bool:
    """Whether a screen can be drawn: in a terminal, or for textual-serve, which names its driver."""
    if os.environ.get("TEXTUAL_DRIVER"):
        return True
    streams = (sys.stdin, sys.stdout, sys.stderr)
    return all(each is not None and each.isatty() for each in streams) and os.environ.get("TERM") != "dumb"


def _open(record: str | None, held: ExitStack) -> Source:
    """What a name stands for. The journal of a run that is over is taken in first, where that was not done."""
    from ui.view.source import Source  # noqa: PLC0415 - it brings the store with it

    home = read_given().get("home")
    base = default_base() if home is None else as_path(str(home.value), home.source) / "runs"
    source = Source.open(record, base)
    folder = source.place.folder
    if folder is None or not _behind(folder, source.place.database):
        return source
    from ui.record import find_record  # noqa: PLC0415 - it brings the collector with it

    found = held.enter_context(find_record(None, str(folder.path)))
    return source if found.database == source.place.database else Source.open(str(found.database), base)


def _behind(run: RunDirectory, database: Path) -> bool:
    """Whether a run is over and its database does not hold all of its journal, as after a collector that was ended."""
    if run.state in LIVE:
        return False
    if not database.exists() or not database.stat().st_size:
        return True
    from store.collect import SINK  # noqa: PLC0415 - as in _open
    from store.standing import read_standings  # noqa: PLC0415 - as in _open

    taken = [each for each in read_standings(run, database) if each.sink == SINK]
    return not taken or taken[0].bytes_behind > 0


def _ask_for(source: Source, rank: int | None) -> Ask | None:
    """What to look at first; None is what the source names. Raises NotFoundError for a rank that is not there."""
    if rank is None or (source.place.folder is not None and source.place.rank == rank):
        return None
    from ui.view.snapshot import Ask  # noqa: PLC0415 - only a rank needs to look before the screen does

    snapshot = _answer(source, Ask())
    same = [each for each in snapshot.runs if each.run == snapshot.head.run]
    for choice in same:
        if choice.rank == rank:
            return choice.asked(Ask())
    ranks = ", ".join(str(each.rank) for each in same) or "none"
    raise NotFoundError(f"run {snapshot.head.run} has no rank {rank}; its ranks are {ranks}")


def _answer(source: Source, ask: Ask) -> Snapshot:
    from ui.view.view import View  # noqa: PLC0415 - as above

    view = View(source)
    try:
        return view.answer(ask, whole=True)
    finally:
        view.close()


def _print(source: Source, ask: Ask | None, at: str, *, as_json: bool) -> None:
    """The snapshot as JSON, or a summary in words, at the moment that was asked for."""
    import msgspec  # noqa: PLC0415 - imported with the store by now

    from ui.output import narrate, print_json, printable  # noqa: PLC0415 - only text needs it
    from ui.view.snapshot import Ask  # noqa: PLC0415 - as above

    everything = frozenset({"live", "waiting", "gates", "hits", "buffers", "knobs", "log"}) if as_json else None
    ask = msgspec.structs.replace(ask or Ask(), panels=everything or frozenset({"live"}))
    snapshot = _answer(source, ask)
    if at:
        ask = msgspec.structs.replace(ask, at_ns=_moment(snapshot.head, at))
        snapshot = _answer(source, ask)
    if as_json:
        print_json(msgspec.to_builtins(snapshot, order="deterministic"))
        return
    from ui.app.text_summary import summary_lines  # noqa: PLC0415 - as above

    for line in summary_lines(snapshot, time.time_ns()):
        click.echo(printable(line))
    narrate("\nThis is no terminal: run `glassgate ui` in one for the screen, or `glassgate ui --web` for a browser.")


def _moment(head: Head, at: str) -> int:
    """The moment of the run that --at names; one outside of it is told, and moved into it. Raises UsageError."""
    from ui.app.moments import moment_of_day, within  # noqa: PLC0415 - as above
    from ui.output import narrate  # noqa: PLC0415 - as above

    try:
        at_ns, moved = within(head, moment_of_day(head, at))
    except ValueError as error:
        raise UsageError(f"--at: {error}") from None
    if moved:
        narrate(f"glassgate: --at {at} {moved}")
    return at_ns


def _print_beside(left: Source, right: Source, *, as_json: bool) -> None:
    """Two runs beside each other as JSON, or where they part in words."""
    from ui.output import print_json, printable  # noqa: PLC0415 - as above
    from ui.view.beside import BesideView  # noqa: PLC0415 - as above

    view = BesideView(left, right)
    try:
        found = view.read()
    finally:
        view.close()
    if as_json:
        import msgspec  # noqa: PLC0415 - as above

        print_json(msgspec.to_builtins(found, order="deterministic"))
        return
    from ui.app.beside_summary import beside_summary  # noqa: PLC0415 - as above

    for line in beside_summary(found):
        click.echo(printable(line))


def _picture(
    source: Source, ask: Ask | None, path: Path, size: tuple[int, int], theme: ThemeName | None, at: str
) -> None:
    """Write the screen to a file."""
    from ui.app.direct import DirectReader, WholeView  # noqa: PLC0415 - as above
    from ui.app.main import picture  # noqa: PLC0415 - as above
    from ui.output import narrate  # noqa: PLC0415 - as above
    from ui.stopping import run_in_loop  # noqa: PLC0415 - as above
    from ui.view.snapshot import Ask  # noqa: PLC0415 - as above
    from ui.view.view import View  # noqa: PLC0415 - as above

    view = WholeView(View(source))
    snapshot = view.answer(ask or Ask())  # what cannot be read is told in a line before there is an app to fail
    if at:
        _moment(snapshot.head, at)
    reader = DirectReader(view)
    svg = run_in_loop(partial(picture, reader, size, theme=theme or "dark", ask=ask, at=at))
    try:
        write_whole(followed(path), svg.encode())
    except OSError as error:
        raise StorageError(f"{path}: {error.strerror}; name a file in a folder that can be written") from None
    narrate(f"written to {path}")


def _size(text: str) -> tuple[int, int]:
    """Columns and lines. Raises UsageError."""
    columns, _, lines = text.lower().partition("x")
    digits = columns.isdecimal() and lines.isdecimal() and len(text) < 10
    if not (digits and 20 <= int(columns) <= 500 and 10 <= int(lines) <= 200):
        raise UsageError(f"--size {text!r} is no size; write COLUMNSxLINES, from 20x10 to 500x200, such as 140x45")
    return int(columns), int(lines)


def _arguments(
    record: str | None, rank: int | None, at: str | None, theme: ThemeName | None, beside: str | None
) -> list[str]:
    """The command line of each visitor's screen."""
    words = [sys.executable, "-P", "-m", "ui", "ui"]
    for name, value in (("--rank", rank), ("--at", at), ("--theme", theme), ("--beside", beside)):
        if value is not None:
            words.append(f"{name}={value}")
    return words if record is None else [*words, "--", record]


def _serve(address: str, record: str | None, command: list[str], *, readonly: bool, allow_changes: bool) -> None:
    """Serve the screen until Ctrl-C."""
    from ui.output import narrate  # noqa: PLC0415 - as above

    try:
        from ui.app.web import ScreenServer, parse_web_address  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise UsageError(f"--web needs {error.name}; install it with: pip install 'glassgate[web]'") from None
    where = parse_web_address(address)
    if record is not None:
        with ExitStack() as held:
            _open(record, held)
    if not where.loopback and not allow_changes:
        readonly = True
    if readonly:
        command.insert(5, "--readonly")
    if not where.loopback:
        may = (
            "can turn the knobs of a live run"
            if not readonly
            else "sees every run; --allow-changes lets them turn knobs"
        )
        narrate(
            f"glassgate: {where.host} is not a loopback address and nobody is asked who they are: who reaches it {may}"
        )
    ScreenServer(command, where).serve_until_interrupted(lambda url: narrate(f"the screen is at {url}; Ctrl-C ends it"))
