"""Settings: their order of precedence, and one clear line for what cannot be read."""

from pathlib import Path

import pytest

from estimator.errors import InputError, KnobError
from ui.settings import load_settings


@pytest.fixture(autouse=True)
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No setting from outside reaches a test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("GLASSGATE_CONFIG", raising=False)
    return tmp_path


def test_an_option_wins_over_the_environment_over_the_file_over_the_base(bare: Path, monkeypatch: pytest.MonkeyPatch):
    """The first of option, environment variable, TOML file and default that names a knob sets it."""
    (bare / "glassgate.toml").write_text("max_requests = 1\nmax_extend_tokens = 2\nmax_cached_tokens = 3\n")
    monkeypatch.setenv("GLASSGATE_MAX_REQUESTS", "10")
    monkeypatch.setenv("GLASSGATE_MAX_EXTEND_TOKENS", "20")
    knobs = load_settings().knobs({"max_requests": "100"}, {"max_cached_tokens": 7, "page_size": 64})
    assert (knobs.max_requests, knobs.max_extend_tokens, knobs.max_cached_tokens, knobs.page_size) == (100, 20, 3, 64)


def test_the_named_file_wins_over_the_folders(bare: Path, monkeypatch: pytest.MonkeyPatch):
    """GLASSGATE_CONFIG names the file; without it the working folder comes before the user's."""
    user = bare / "config" / "glassgate"
    user.mkdir(parents=True)
    (user / "glassgate.toml").write_text("max_requests = 3\n")
    assert load_settings().knobs({}).max_requests == 3
    (bare / "glassgate.toml").write_text("max_requests = 2\n")
    assert load_settings().knobs({}).max_requests == 2
    (bare / "named.toml").write_text('max_requests = 1\nmax_buffer_bytes = "4GiB"\n')
    monkeypatch.setenv("GLASSGATE_CONFIG", str(bare / "named.toml"))
    assert load_settings().knobs({}).max_requests == 1
    assert load_settings().knobs({}).max_buffer_bytes == 4 << 30


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("max_request = 3\n", ["max_request", "max_requests"]),
        ("max_requests = \n", ["glassgate.toml", "not TOML"]),
        ("[max_requests]\nx = 1\n", ["max_requests"]),
        ("\xff", ["glassgate.toml"]),
    ],
)
def test_a_bad_file_is_one_clear_line(bare: Path, text: str, words: list[str]):
    """A TOML file with an unknown key, a bad value or no TOML in it is an InputError that names it."""
    (bare / "glassgate.toml").write_bytes(text.encode("latin-1"))
    with pytest.raises(InputError) as caught:
        load_settings()
    assert all(word in str(caught.value) for word in words)
    assert "\n" not in str(caught.value)


def test_a_misspelt_variable_is_an_error(monkeypatch: pytest.MonkeyPatch):
    """An environment variable that looks like a setting and is none is named, not ignored."""
    monkeypatch.setenv("GLASSGATE_MAX_REQUEST", "3")
    with pytest.raises(InputError, match=r"GLASSGATE_MAX_REQUEST is set but is no setting.*GLASSGATE_MAX_REQUESTS"):
        load_settings()


def test_a_missing_named_file_is_an_error(monkeypatch: pytest.MonkeyPatch):
    """GLASSGATE_CONFIG must name a file."""
    monkeypatch.setenv("GLASSGATE_CONFIG", "nowhere.toml")
    with pytest.raises(InputError, match=r"nowhere\.toml.*unset"):
        load_settings()


def test_a_bad_knob_from_the_environment_names_the_knob(monkeypatch: pytest.MonkeyPatch):
    """A knob's range is checked wherever its value comes from."""
    monkeypatch.setenv("GLASSGATE_MAX_REQUESTS", "0")
    with pytest.raises(KnobError, match="max_requests is 0"):
        load_settings().knobs({})
