"""The summary of a replay, for people."""

from typing import Any

from ui.output import data, print_table


def print_summary(summary: dict[str, Any]) -> None:
    """What a replay adds up to, on stdout."""
    out = data()
    never = summary["decisions"]["by_gate"].get("kv_capacity", {}).get("can_never", 0)
    hits = summary["device_hit_tokens"] + summary["host_hit_tokens"]
    print_table(
        ("", ""),
        [
            ("requests", f"{summary['requests']:,} ({summary['finished']:,} finished, {summary['aborts']:,} aborted)"),
            *([("  can never fit", f"{never:,} refused at once, see glassgate query can-never")] if never else []),
            ("passes", summary["passes"]),
            ("prompt tokens", summary["prompt_tokens"]),
            ("  device hit", summary["device_hit_tokens"]),
            ("  host hit", summary["host_hit_tokens"]),
            ("  hit ratio", f"{summary['hit_ratio']:.2%}" if hits else "0 %"),
            ("computed tokens", summary["computed_tokens"]),
            ("retractions", summary["retractions"]),
            ("simulated", f"{summary['simulated_seconds']:,.1f} s"),
            ("wall", f"{summary['wall_seconds']:,.2f} s, {summary['requests_per_second']:,.0f} requests a second"),
        ],
    )
    out.print()
    stops = [(gate, reason, count) for gate, found in summary["closed_by"].items() for reason, count in found.items()]
    stops.sort(key=lambda stop: -stop[2])
    rest = summary["passes"] - sum(count for _, _, count in stops)
    if rest:
        stops.append(("nothing", "the whole queue was looked at", rest))
    rows = [(*stop, f"{stop[2] / summary['passes']:.1%}") for stop in stops]
    print_table(("closed by", "reason", "passes", "share"), rows, title="What stopped the batches")
    out.print()
    names = ("p50", "p90", "p95", "p99", "max")
    print_table(
        ("", *names),
        [
            (label, *(_number(summary[key].get(name), unit) for name in names))
            for label, key, unit in (
                ("batch size", "batch_size", ""),
                ("queue time", "queue_seconds", " s"),
                ("TTFT", "ttft_seconds", " s"),
            )
        ],
        title="Percentiles",
    )
    skipped = {reason: count for reason, count in summary["host_hits_skipped"].items() if count}
    if skipped:
        out.print()
        print_table(("host hit skipped", "times"), skipped.items())
    out.print()
    out.print(f"database  {summary['database']}", soft_wrap=True)
    out.print(f"journal   {summary['journal']}", soft_wrap=True)


def _number(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    return f"{value:,.2f}{unit}" if unit else f"{value:,}"
