"""A case written by hand - a model, requests, a run - and its answer as nested plain values."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from estimator.allocation import allocation_plan, play
from estimator.buffers import BUFFERS, PARTS
from estimator.context import RunContext
from estimator.errors import InputError, shown
from estimator.estimate import Estimate, estimate_batch
from estimator.geometry import Geometry
from estimator.given_file import read_given_json
from estimator.presets import model
from estimator.static import static_memory

_REQUIRED = ("model", "requests")
_OPTIONAL = ("run", "name", "note", "expected", "hand")
_REQUEST_LENGTHS = (2, 3)


@dataclass(frozen=True, slots=True)
class Case:
    """One batch of one model in one run; requests as (prefix, extend) or (prefix, extend, loaded) tokens."""

    name: str
    geometry: Geometry
    context: RunContext
    requests: tuple[tuple[int, ...], ...]

    def estimate(self) -> Estimate:
        """Return the estimate of this case. Raises InputError for a request that cannot be one."""
        return estimate_batch(self.geometry, self.context, self.requests)


def read_case(given: Any) -> Case:
    """Read a case from its JSON value. `model` is a preset's name, a path to a config.json, or a config as an object.

    Raises InputError that names the key that is unknown, missing or of the wrong kind.
    """
    if not isinstance(given, Mapping):
        raise InputError(f"case: holds {type(given).__name__}, but must be an object with model, requests and run")
    unknown = sorted(set(given) - {*_REQUIRED, *_OPTIONAL})
    if unknown:
        raise InputError(f"case: unknown key {', '.join(unknown)}; known are {', '.join((*_REQUIRED, *_OPTIONAL))}")
    for key in _REQUIRED:
        if key not in given:
            raise InputError(f"case: key {key} is missing")
    name = given.get("name", "case")
    if isinstance(given["model"], Mapping):
        geometry = Geometry.from_config(given["model"])
    elif isinstance(given["model"], str):
        geometry = model(given["model"])
    else:
        raise InputError(f"case: model is {shown(given['model'])}, but must be a name, a path or a config object")
    run = given.get("run", {})
    if not isinstance(run, Mapping):
        raise InputError(f"case: run is {shown(run)}, but must be an object")
    return Case(str(name), geometry, RunContext.from_run(run, geometry), _read_requests(given["requests"]))


def read_cases(path: str | Path) -> list[Case]:
    """Read a file (`-` is standard input) that holds one case or a list of cases.

    Raises InputError naming the file and the case.
    """
    given = read_given_json(path)
    cases = given if isinstance(given, list) else [given]
    read: list[Case] = []
    for index, each in enumerate(cases):
        try:
            read.append(read_case(each))
        except InputError as error:
            where = f" [{index}]" if isinstance(given, list) else ""
            raise InputError(f"{path}{where}: {error}") from error
    return read


def answer(case: Case) -> dict[str, Any]:
    """Return a case's estimate as nested plain values, ready for JSON. Bytes, tokens, rows and counts are integers.

    `buffers` names every buffer there is, zero where this batch has none; `peak.bytes` is the plain sum at the peak and
    `peak.with_safety_bytes` what the admission gate compares.
    """
    estimate = case.estimate()
    sizes, score = estimate.sizes, estimate.score
    static = static_memory(case.geometry, case.context)
    allocator = play(allocation_plan(estimate))
    return {
        "name": case.name,
        "model": case.geometry.name,
        "rank": estimate.rank,
        "tokens": {
            "requests": sizes.B,
            "T": sizes.T,
            "Tl": sizes.Tl,
            "Tp": sizes.Tp,
            "Tm": sizes.Tm,
            "sumS": sizes.S,
            "sumP": sizes.P,
            "maxS": sizes.BM // sizes.B if sizes.B else 0,
        },
        "mqa": {
            "rows": score.rows,
            "cols": score.cols,
            "chunk_rows": score.chunk_rows,
            "chunks": score.chunks,
            "budget_bytes": case.context.mqa_budget.bytes,
        },
        "static": {
            "rows": static.rows,
            "row_bytes": static.row_bytes,
            "bytes": static.bytes,
            "page_map_bytes": static.page_map_bytes,
            "workspace_bytes": static.workspace_bytes,
        },
        "buffers": {name: estimate.buffers.get(name, 0) for name in BUFFERS},
        "phases": {
            phase: {"bytes": size, "buffers": estimate.at_phase(phase)} for phase, size in estimate.phases.items()
        },
        "windows": [
            {
                "name": window.name,
                "stream": window.stream,
                "first": window.first,
                "last": window.last,
                "bytes": estimate.window_bytes(window),
                "buffers": [name for name in window.buffers if name in estimate.buffers],
            }
            for window in estimate.windows
        ],
        "peak": {
            "bytes": estimate.requested,
            "phase": estimate.peak_phase,
            "safety_factor": str(case.context.safety_factor),
            "with_safety_bytes": estimate.peak_bytes,
            "parts": dict(zip(PARTS, estimate.parts, strict=True)),
        },
        "allocator": {
            "requested": allocator.requested,
            "rounded": allocator.rounded,
            "reserved": allocator.reserved,
        },
        "run": case.context.as_run(),
    }


def _read_requests(given: Any) -> tuple[tuple[int, ...], ...]:
    if not isinstance(given, list) or not given:
        raise InputError(f"case: requests is {shown(given)}, but must be a list of at least one [prefix, extend]")
    for index, request in enumerate(given):
        if (
            not isinstance(request, list)
            or len(request) not in _REQUEST_LENGTHS
            or any(not isinstance(item, int) or isinstance(item, bool) for item in request)
        ):
            raise InputError(
                f"case: requests[{index}] is {shown(request)}, but must be [prefix, extend] or [prefix, extend, loaded]"
            )
    return tuple(tuple(request) for request in given)
