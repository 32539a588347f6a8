"""The reference pages that are generated from the code: `make docs` writes them, a test fails when they drift."""

import inspect
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import click

from controller.gates import LADDER, STRICT_GATES
from controller.knobs import KNOB_SPECS, Knobs
from controller.vocabulary import (
    GATE_REASONS,
    LADDER_GATES,
    SOFT_GATES,
    Gate,
    HostHit,
    Outcome,
    Reason,
    Verdict,
    unit_of,
)
from store.spans_reference import telemetry_page
from ui.cli import COMMANDS, EXIT_CODES, cli
from ui.keys_reference import keys_page

FOLDER: Final = Path(__file__).resolve().parents[1] / "docs" / "reference"
_MADE: Final = "<!-- Generated from the code by `make docs`; do not edit. -->\n\n"
_SIZES: Final = (
    "\nA size in bytes (SIZE) is a whole number, or a number with a unit: KiB, MiB, GiB and TiB count by 1,024, kB, MB,"
    " GB and TB by 1,000. Case does not matter.\n"
)


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A Markdown table."""
    lines = [f"| {' | '.join(columns)} |", "|" + " --- |" * len(columns)]
    lines += [f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in row)} |" for row in rows]
    return "\n".join(lines) + "\n"


def cli_page() -> str:
    """Every command with its options, and the exit codes."""
    parts = [_MADE, "# Command line\n\n", "stdout is data, stderr is narration.\n", _SIZES]
    context = click.Context(cli, info_name="glassgate")
    for name in COMMANDS:
        command = cli.get_command(context, name)
        if command is None:
            continue
        parts += _sections(command, f"glassgate {name}")
    parts.append("\n## Exit codes\n\n" + table(("code", "meaning"), EXIT_CODES.items()))
    return "".join(parts)


def _sections(command: click.Command, name: str) -> list[str]:
    """A command's section, and one for each command it groups."""
    arguments = [_argument(each) for each in command.params if isinstance(each, click.Argument)]
    options = [each for each in command.params if isinstance(each, click.Option)]
    takes = [*(["[OPTIONS]"] if options else []), *arguments]
    if isinstance(command, click.Group):
        takes.append("COMMAND")
    parts = [f"\n## {name}\n\n`{' '.join([name, *takes])}`\n\n{inspect.cleandoc(command.help or '')}\n"]
    if options:
        parts.append("\n" + table(("option", "default", "meaning"), (_option(each) for each in options)))
    if isinstance(command, click.Group):
        for each in command.commands.values():
            parts += _sections(each, f"{name} {each.name}")
    return parts


def _argument(argument: click.Argument) -> str:
    word = argument.metavar or (argument.name or "").upper()
    return word if argument.required or word.startswith("[") else f"[{word}]"


_TAKES: Final = {"integer": "N", "integer range": "N", "float": "X", "float range": "X"}


def _option(option: click.Option) -> tuple[str, str, str]:
    names = ", ".join((*option.opts, *option.secondary_opts))
    if isinstance(option.type, click.Choice):
        takes = "|".join(map(str, option.type.choices))
    else:
        takes = "" if option.is_flag else option.metavar or _TAKES.get(option.type.name, option.type.name.upper())
    shown = option.default if option.show_default else ""
    default = f"{shown:,}" if isinstance(shown, int) else str(shown or "")
    return f"`{names}{' ' + takes if takes else ''}`", default, option.help or ""


def gates_page() -> str:
    """The ladder, the knobs, and the closed lists a decision is written in."""
    knobs = {spec.gate: spec.name for spec in KNOB_SPECS if spec.gate}
    rows = [
        (
            f"`{gate.word}`",
            f"`{knobs[gate.word]}`" if gate.word in knobs else "engine",
            _words(check),
            "soft" if gate in SOFT_GATES else "hard",
            "observed >= limit" if gate in STRICT_GATES else "observed > limit",
            ", ".join(f"`{reason.word}` ({unit_of(gate, reason)})" for reason in GATE_REASONS[gate]),
        )
        for gate, check in LADDER
    ]
    defaults = Knobs()
    knob_rows = [
        (
            f"`{spec.name}`",
            spec.unit,
            _default(getattr(defaults, spec.name)),
            f"`GLASSGATE_{spec.name.upper()}`",
            f"`--{spec.name.replace('_', '-')}`",
            spec.bounds,
        )
        for spec in KNOB_SPECS
    ]
    return (
        _MADE
        + "# Gates, knobs and words\n\nGates are evaluated in this order. A soft gate stops a batch from growing and"
        " never keeps a lone request out; with `enforce` off it only records what it would have done. [SG] marks a rule"
        " of SGLang 0.5.23, `PrefillAdder`.\n\n"
        + table(("gate", "knob", "rule", "kind", "refuses when", "reasons (unit)"), rows)
        + "\n## Gates that only an engine has\n\nThey are no step of the ladder above: an engine's own code says no"
        " there, and a plug-in names it with what the engine compared. Observed and limit are 0 where the engine"
        " compares no number.\n\n"
        + table(
            ("gate", "the engine says no because", "reasons (unit)"),
            (
                (
                    f"`{gate.word}`",
                    _ENGINE_GATES[gate],
                    ", ".join(f"`{reason.word}` ({unit_of(gate, reason)})" for reason in GATE_REASONS[gate]),
                )
                for gate in tuple(Gate)[len(LADDER_GATES) :]
            ),
        )
        + "\n## Knobs\n\n"
        + table(("knob", "unit", "default", "environment", "option", "what it bounds"), knob_rows)
        + "\n## Outcomes\n\n"
        + table(("outcome", "meaning"), ((f"`{word.word}`", _OUTCOMES[word]) for word in Outcome))
        + "\n## Verdicts of a check\n\n"
        + table(("verdict", "meaning"), ((f"`{word.word}`", _VERDICTS[word]) for word in Verdict))
        + "\n## Host hits\n\n"
        + table(("status", "reason", "meaning"), ((word.status, f"`{word.word}`", _HITS[word]) for word in HostHit))
        + "\n## Values in the record\n\n"
        + table(
            ("list", "values"),
            (
                (kind.__name__, ", ".join(f"{word.value} `{word.word}`" for word in kind))
                for kind in (Gate, Reason, Outcome, Verdict, HostHit)
            ),
        )
    )


_ENGINE_GATES: Final = {
    Gate.BATCH_FULL: (
        "its running batch is marked full, and it looks at nobody until a request leaves it (SGLang `batch_is_full`); "
        "the reason is what set the mark, as far as that is in the record"
    ),
    Gate.PREFILL_DELAY: (
        "it holds prefill back on purpose: ranks that wait for each other (`delayer`), too few free slots "
        "(`free_slots`), decode steps between prefills (`interval`), a cadence of its own (`cadence`)"
    ),
    Gate.SHARD_SCRATCH: "the batch's prefixes or chunks would not fit the scratch of a sharded KV pool",
    Gate.TILE_BUDGET: "the batch would take more attention tiles than allowed (SGLang on AMD)",
    Gate.STATE_SLOTS: "no state slot is left for a model with recurrent layers",
    Gate.LORA: "its adapter cannot join those loaded; the pass goes on behind it",
    Gate.POOLING_MODE: "it pools other tokens than the batch's first member; the pass goes on behind it",
    Gate.STORAGE: (
        "its prefix is still on the way from storage (`prefetch`) or is not staged yet (`staging`); the pass goes on "
        "behind it"
    ),
    Gate.LOAD_BACK: (
        "its host hit could be neither loaded nor given up in this pass (`deferred`), is on its way (`loading`), or is "
        "still being looked up (`lookup`)"
    ),
    Gate.UNATTRIBUTED: "the engine said no and the cause cannot be told from outside; it is counted, never guessed",
    Gate.REQUEST_STATE: (
        "the request is not ready: its grammar is being compiled, more of its input is to come, or output of before it "
        "was put aside is still on the way"
    ),
    Gate.ENCODER: "the encoder's budget or cache is spent, or what it made is still on the way",
    Gate.PAUSED: "it was told to pause",
}
_OUTCOMES: Final = {
    Outcome.ADMIT: "enters the batch and is computed to the end of its prompt",
    Outcome.ADMIT_CHUNK: "enters the batch cut to a chunk; the rest goes on in later passes",
    Outcome.PARK: "the continuing chunk gets nothing this pass and keeps its slot; it closes the pass",
    Outcome.WAIT: "stays in the queue; it closes the pass, except at an engine's gate that says otherwise",
    Outcome.REFUSE: "can never be served by this pool; it leaves, and the queue behind it moves on",
}
_VERDICTS: Final = {
    Verdict.PASS: "within the limit",
    Verdict.REFUSE: "over the limit; the ladder ends here",
    Verdict.EXEMPT: "over a soft limit, but the first member of its batch",
    Verdict.OFF: "no limit is set",
    Verdict.WOULD_REFUSE: "over a soft limit in shadow mode",
    Verdict.NOT_EVALUATED: "the ladder ended before this gate",
}
_HITS: Final = {
    HostHit.PLANNED: "worth loading and within the quota; not asked for, since the request did not enter",
    HostHit.LOADED: "loaded to the device",
    HostHit.BELOW_THRESHOLD: "shorter than `load_back_threshold`",
    HostHit.QUOTA: "longer than free + evictable - own device hit - promised in this pass",
    HostHit.OWNER_LANE: "the load found an owner lane without room",
    HostHit.ALLOCATOR: "the load found no room after eviction",
    HostHit.IN_FLIGHT: "the pages are being moved already",
    HostHit.DISABLED: "there is no host cache, or loading is off",
    HostHit.NONE_RESIDENT: "nothing of the prompt continues on the host",
    HostHit.CONTROLLER: "there was room, and the engine's cache controller failed the load",
    HostHit.NOT_TOLD: "the engine did not load it and did not say why; it is counted, never guessed",
}
PAGES: Final[dict[str, Callable[[], str]]] = {
    "cli.md": cli_page,
    "gates.md": gates_page,
    "keys.md": lambda: _MADE + keys_page(table),
    "telemetry.md": telemetry_page,
}


def _words(function: Callable[..., Any]) -> str:
    return " ".join((inspect.getdoc(function) or "").split())


def _default(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return "unlimited" if value is None else f"{value:,}"


def main() -> None:
    """Write every page."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        (FOLDER / name).write_text(page(), encoding="utf-8")
        sys.stderr.write(f"wrote docs/reference/{name}\n")


if __name__ == "__main__":
    main()
