"""What a decision costs beside what others do, in one run: `make side-by-side`.

    python tests/engines/side_by_side.py [--rounds N] [--engines FOLDER] [--json FILE] [--quick]

In each round everything has its turn: in this process our record of a decision, an OpenTelemetry span and an SQLite
statement in a scheduler's thread, and a journal taken into a store against plain rows; then SGLang's class and vLLM's
`schedule()` against ours, each in its engine's environment (FOLDER/sglang, FOLDER/vllm, as `make engines` makes them).
An engine that is not installed is left out, loudly. It prints a table in Markdown: medians of the rounds, and the
ratio with its quartiles.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from ui.bench.beside import Stored, Way, beside_us, storing_us
from ui.bench.measure import Spread

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parents[1]


class Pair(NamedTuple):
    """What one round found: the other way and ours, each a median in microseconds."""

    what: str
    theirs_us: float
    ours_us: float


class Line(NamedTuple):
    """A line of the table: medians of the rounds, and the spread of ours to theirs."""

    what: str
    theirs_us: float
    ours_us: float
    ratio: Spread

    @classmethod
    def of(cls, pairs: list[Pair]) -> Line:
        """What the rounds of one comparison come to."""
        theirs, ours = (Spread.of([pair[place] for pair in pairs]).median for place in (1, 2))
        return cls(pairs[0].what, theirs, ours, Spread.of([pair.ours_us / pair.theirs_us for pair in pairs]))


def here(*, quick: bool) -> Iterator[Pair]:
    """The comparisons that need no engine."""
    kept = beside_us(20 if quick else 200)
    ours = kept[Way.APPENDED].median
    yield Pair("OpenTelemetry span in the scheduler thread, a decision", kept[Way.SPAN].median, ours)
    yield Pair("sqlite3 executemany in the scheduler thread, a decision", kept[Way.STATEMENT].median, ours)
    stored = storing_us(1 if quick else 5)
    yield Pair("plain sqlite3 executemany beside the engine, a decision", stored[Stored.PLAIN].median,
               stored[Stored.OURS].median)  # fmt: skip


def commands(engines: Path, *, quick: bool) -> dict[str, list[str]]:
    """The bench of each engine that is installed."""
    wanted = {
        "sglang": [str(HERE / "sglang" / "bench_adder.py"), "--json", "--rounds", "5" if quick else "30"],
        "vllm": [str(HERE / "vllm" / "bench.py"), str(engines / "vllm" / "tiny-model"), "--json", "--requests",
                 "100" if quick else "300"],
    }  # fmt: skip
    found = {}
    for name, words in wanted.items():
        if (engines / name / ".ready").exists():
            found[name] = [str(engines / name / "bin" / "python"), *words]
        else:
            say(f"\n######## NOT MEASURED: {name}\n######## {engines / name} is not ready; run make engines\n")
    return found


def beside_engine(name: str, command: list[str], home: str) -> Iterator[Pair]:
    """The stock class of an engine and ours, case by case."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLASSGATE_HOME": home}
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"the bench of {name} ended with code {done.returncode}:\n{done.stderr[-2000:]}")
    for row in json.loads(done.stdout.strip().splitlines()[-1]):
        yield Pair(f"{name}: {row['case']}, {row['what']}", row["stock_us"], row["ours_us"])


def measured(rounds: int, engines: Path, *, quick: bool) -> list[Line]:
    """Every comparison, over so many rounds in which each has its turn."""
    pairs: dict[str, list[Pair]] = {}

    def take(found: Iterable[Pair]) -> None:
        for pair in found:
            pairs.setdefault(pair.what, []).append(pair)

    benches = commands(engines, quick=quick)
    with tempfile.TemporaryDirectory() as home:
        for turn in range(rounds):
            take(here(quick=quick))
            for name, command in benches.items():
                take(beside_engine(name, command, home))
            say(f"round {turn + 1} of {rounds} done")
    return [Line.of(each) for each in pairs.values()]


def table(lines: list[Line]) -> Iterator[str]:
    """The lines in Markdown."""
    yield "| against | theirs, µs | ours, µs | ours to theirs (quartiles) |"
    yield "| --- | --- | --- | --- |"
    for line in lines:
        quartiles = f"{line.ratio.lower:.3g} to {line.ratio.upper:.3g}"
        yield f"| {line.what} | {line.theirs_us:,.2f} | {line.ours_us:,.2f} | {line.ratio.median:.3g} ({quartiles}) |"


def say(line: str) -> None:
    """Tell how far it is."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--engines", type=Path, default=ROOT / ".engines")
    parser.add_argument("--json", type=Path, help="leave the lines there as JSON too")
    parser.add_argument("--quick", action="store_true", help="few rounds of each")
    asked = parser.parse_args()
    lines = measured(asked.rounds, asked.engines.absolute(), quick=asked.quick)
    if asked.json is not None:
        plain = [{**line._asdict(), "ratio": line.ratio._asdict()} for line in lines]
        asked.json.write_text(json.dumps(plain, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    sys.stdout.writelines(f"{line}\n" for line in table(lines))


if __name__ == "__main__":
    main()
