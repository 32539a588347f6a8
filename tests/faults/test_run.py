"""The command behind `make faults`: what it writes down, and what it does not do again."""

import json

from tests.faults import plan, run


def test_the_table_is_made_of_what_the_tests_noted(tmp_path, monkeypatch):
    """Each note is a row in its place, between the marks of the page; the rest of the page stays."""
    page = tmp_path / "page.md"
    page.write_text(f"before\n{run.BEGIN}of yesterday\n{run.END}after\n")
    monkeypatch.setattr(run, "PAGE", page)
    monkeypatch.setattr(run, "ROOT", tmp_path)
    monkeypatch.setenv("FAULTS_NOTES", str(tmp_path / "notes"))
    later, earlier = plan.Tally(2, "later", "by hand"), plan.Tally(1, "earlier", "by hand", unit="kills")
    for tally in (later, earlier):
        monkeypatch.setenv("PYTEST_CURRENT_TEST", f"{tally.fault} (call)")
        tally.add(None)
        tally.count("other things", 1_234)
        tally.note()
    rows = run.rows_of(tmp_path / "notes", plan.ROUNDS, plan.SEED)
    run.rewrite(rows, 7, 200, ["vllm"])
    text = page.read_text()
    assert text.startswith(f"before\n{run.BEGIN}")
    assert text.endswith(f"{run.END}after\n")
    assert "yesterday" not in text
    assert "| earlier | by hand | 1 kills | 0 | 0 | 0 | other things: 1,234 |\n| later | by hand | 1 rounds |" in text
    assert "`make faults ROUNDS=200 SEED=7`" in text
    assert "vllm was not installed." in text


def test_only_notes_of_the_same_rounds_and_seed_count(tmp_path):
    """What was noted with other rounds or another seed is not taken for done."""
    notes = tmp_path / "notes"
    rows = [{"test": str(rounds + seed), "rounds": rounds, "seed": seed} for rounds in (20, 200) for seed in (1, 2)]
    notes.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert [row["test"] for row in run.rows_of(notes, 200, 2)] == ["202"]
    assert run.rows_of(tmp_path / "none", 200, 2) == []


def test_the_page_has_its_marks():
    """The page that is rewritten has a place for the figures."""
    text = run.PAGE.read_text(encoding="utf-8")
    assert text.index(run.BEGIN) < text.index(run.END)
