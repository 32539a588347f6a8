"""`glassgate smoke`: the start-up allocation, tried by hand."""

from dataclasses import asdict

import click

from controller.knobs import parse_bytes
from gpu_probe.device import describe
from gpu_probe.smoke import smoke as smoke_device
from store.words import duration, size
from ui.options import json_option
from ui.output import cell, narrate, print_json, print_table


@click.command()
@click.option("--device", default="cpu", show_default=True, help="cuda:0, cuda:1, ... or cpu (host memory).")
@click.option(
    "--bytes", "asked", metavar="SIZE", help="How much to allocate, for instance 4GiB; without it the device is told."
)
@click.option(
    "--keep-free", metavar="SIZE", help="Device memory never to touch [default: on the cpu 1 GiB or 5 percent]."
)
@json_option
def smoke(*, device: str, asked: str | None, keep_free: str | None, as_json: bool) -> None:
    """Allocate bytes on a device for real, touch every page, read the allocator, and give them back.

    Exit code 9 when they do not fit; what did fit, and what to set, is said.
    """
    if asked is None:
        _tell_device(device, as_json=as_json)
        return
    left = None if keep_free is None else parse_bytes(keep_free, "--keep-free")
    wanted = parse_bytes(asked, "--bytes")
    narrate(f"allocating {size(wanted)} on {device} and touching every page; a size that does not fit is bisected")
    result = smoke_device(device, wanted, keep_free=left)
    if as_json:
        print_json(asdict(result))
    else:
        shown = ("asked", "requested", "allocated", "reserved", "peak", "free_before", "free_after", "total", "largest")
        rows: list[tuple[str, object, str]] = [
            (name.replace("_", " "), getattr(result, name), size(getattr(result, name))) for name in shown
        ]
        rows += [("pieces", result.pieces, ""), ("took", duration(result.took_ns), "")]
        print_table((f"{result.device} ({result.name})", "bytes", ""), rows)
    result.check()


def _tell_device(device: str, *, as_json: bool) -> None:
    found = asdict(describe(device))
    if as_json:
        print_json(found)
    else:
        print_table(
            ("device", found["device"]),
            [
                (name.replace("_", " "), size(value) if isinstance(value, int) else cell(value))
                for name, value in found.items()
                if name != "device"
            ],
        )
