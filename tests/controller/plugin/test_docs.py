"""The guide to the plug-ins says what the code has: settings, knobs, engines, checks."""

import re
from pathlib import Path

from controller.engines.plugin import SUPPORTED
from controller.knobs import KNOB_SPECS
from controller.settings import SETTING_SPECS, VARIABLES

ROOT = Path(__file__).resolve().parents[3]
GUIDE = (ROOT / "docs" / "engines.md").read_text()
KINDS = {"switch": "on or off", "path": "path", "address": "address", "off|warn|require": "off, warn or require"}


def rows(section):
    """The cells of each row of the tables in a section of the guide."""
    text = GUIDE.split(f"## {section}\n")[1].split("\n## ")[0] if section else GUIDE.split("\n## ")[0]
    return [
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("| `")
    ]


def test_the_guide_has_every_setting_and_knob():
    """Each setting and each knob has its row, with values, default and meaning as the code has them."""
    settings = [[f"`{spec.name}`", KINDS[spec.kind], spec.default, spec.does] for spec in SETTING_SPECS]
    knobs = [[f"`{spec.name}`", spec.unit, spec.bounds] for spec in KNOB_SPECS]
    assert rows("Settings") == settings + knobs


def test_the_guide_has_every_engine_and_version():
    """The table of engines is the one the plug-ins go by."""
    text = GUIDE.split("\n## ")[0]
    told = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("| ")
    ]
    wanted = [
        [
            each.title,
            ", ".join(f"`{name}`" for name in each.distributions),
            ", ".join(each.versions),
            f"`{each.entry_group}`",
        ]
        for each in SUPPORTED.values()
    ]
    assert told[2:] == wanted


def test_the_guide_has_every_check_of_doctor():
    """Each name of a check that doctor prints stands in the guide's table."""
    source = "".join(path.read_text() for path in sorted((ROOT / "ui" / "doctor").glob("*.py")))
    printed = set(re.findall(r'(?:ok|warn|fail)\(\s*"([a-zA-Z -]+)"', source)) | set(
        re.findall(r'check: str = "([a-zA-Z ]+)"', source)
    )
    told = {name for row in rows("glassgate doctor") for name in re.findall(r"`([^`]+)`", row[0])}
    assert printed - told == set()
    assert len(printed) >= 18


def test_every_variable_in_the_guide_is_one():
    """No variable is named that nobody reads."""
    named = set(re.findall(r"GLASSGATE(?:_[A-Z]+)*\b", GUIDE)) - {"GLASSGATE_"}
    assert named <= VARIABLES
