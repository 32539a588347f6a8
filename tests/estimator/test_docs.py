"""The estimator's page against the code."""

from dataclasses import fields
from pathlib import Path

from estimator.buffers import PARTS
from estimator.context import MlpSpec, MqaBudget, RunContext
from estimator.reference import buffer_table
from estimator.timeline import PHASES

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "estimator.md").read_text(encoding="utf-8")


def test_page_lists_every_buffer_as_the_code_has_it():
    """The page's table of buffers is the one the code writes."""
    assert PAGE.endswith(buffer_table() + "\n")


def test_page_names_every_setting_phase_and_part():
    """Every setting of a run, every phase and every part of a record stands on the page."""
    settings = [item.name for kind in (RunContext, MlpSpec) for item in fields(kind)]
    settings += [item.name for item in fields(MqaBudget) if item.name != "free_fraction"]
    named = [phase for phase in PHASES if not phase.startswith("draft_")]
    for name in (*settings, *named, *PARTS):
        assert f"`{name}`" in PAGE or f'"{name}"' in PAGE or f".{name}`" in PAGE, name
