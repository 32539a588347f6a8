"""The buffer list as a table for the documentation, written from the code."""

from estimator.buffers import BUFFERS
from estimator.timeline import TIMELINE


def buffer_table() -> str:
    """Return a Markdown table of every buffer: section, name, bytes, lifetime, stream, bound, meaning, source."""
    lines = [
        "| § | buffer | bytes | alive | stream | bound | what it is | source |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for buffer in BUFFERS.values():
        windows = [window for window in TIMELINE if buffer.name in window.buffers]
        alive = ", ".join(
            window.first if window.first == window.last else f"{window.first} to {window.last}" for window in windows
        )
        streams = ", ".join(dict.fromkeys(window.stream for window in windows))
        cells = (
            str(buffer.section),
            f"`{buffer.name}`",
            buffer.formula,
            alive,
            streams,
            buffer.bound,
            buffer.says,
            buffer.source,
        )
        lines.append(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |")
    return "\n".join(lines)
