"""The generated reference pages say what the code says."""

import pytest

from ui.reference import FOLDER, PAGES


@pytest.mark.parametrize("name", PAGES)
def test_a_generated_page_has_not_drifted(name: str):
    """docs/reference holds exactly what `make docs` would write."""
    assert (FOLDER / name).read_text(encoding="utf-8") == PAGES[name](), "run `make docs`"
