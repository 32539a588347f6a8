"""`glassgate doctor`: whether it is installed, in force, moving and arriving."""

from typing import Final

import click

from estimator.errors import GlassgateError
from store.words import counted
from ui.doctor.finding import FAIL, WARN, Finding, examine, warn
from ui.doctor.installation import examine_installation
from ui.doctor.processes import examine_processes
from ui.doctor.running import examine_run, find_run
from ui.options import json_option
from ui.output import data, narrate, print_json, printable
from ui.settings import load_settings

FOUND_A_FAILURE: Final = 11


@click.command()
@click.argument("run", required=False)
@json_option
@click.pass_context
def doctor(ctx: click.Context, /, *, run: str | None, as_json: bool) -> None:
    """Look at this environment, and at RUN or the newest run of a real engine: one line a check, with what to do.

    Run it in the engine's environment and working folder, as the engine's user. Nothing is changed. Ends with exit code
    11 if a check fails; a warning is none.
    """
    findings = examine_installation()
    try:
        base = load_settings().runs
    except GlassgateError:  # told among the findings
        base = None
    findings += examine("engine process", lambda: examine_processes(base, one_run=run is not None))
    found = find_run(run, base)
    if found is None:
        findings.append(warn("run", "no engine has recorded a run here yet", "start one with GLASSGATE=1"))
    else:
        findings += examine_run(found)
    if as_json:
        print_json([finding._asdict() for finding in findings])
    else:
        _show(findings)
    if any(finding.state == FAIL for finding in findings):
        ctx.exit(FOUND_A_FAILURE)


def _show(findings: list[Finding]) -> None:
    console = data()
    width = max(len(finding.check) for finding in findings)
    style = {FAIL: "bold red", WARN: "yellow"}
    for finding in findings:
        remedy = f" -> {finding.remedy}" if finding.remedy else ""
        line = printable(f"{finding.check:<{width}}  {finding.found}{remedy}").replace("\n", " ")
        console.print(f"{finding.state:<4}", style=style.get(finding.state, "green"), end="  ", markup=False)
        console.print(line, markup=False, soft_wrap=True)
    failed, warned = (sum(finding.state == state for finding in findings) for state in (FAIL, WARN))
    narrate(f"{len(findings)} checks: {failed} failed, {counted(warned, 'warning')}")
