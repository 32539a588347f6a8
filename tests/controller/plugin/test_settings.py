"""Settings of a plug-in: where they are found, which source wins, and one clear line for what cannot be."""

import os

import pytest

from controller.engines.plugin import check_settings, read_settings, switched_on
from controller.knobs import KNOB_SPECS
from controller.settings import SETTING_NAMES, SETTING_SPECS, VARIABLES
from estimator.errors import GlassgateError, InputError, KnobError
from ui.settings import Settings, load_settings

FLAGS = {
    "chunked_prefill_size": (512, "--chunked-prefill-size"),
    "max_prefill_tokens": (1024, "--max-prefill-tokens"),
    "page_size": (16, "--page-size"),
}


def test_environment_wins_over_file_over_flag_over_default(monkeypatch, tmp_path):
    """The first of environment variable, file, engine flag and default that names a knob sets it, and is named."""
    path = tmp_path / "cwd" / "glassgate.toml"
    path.write_text('max_requests = 3\nchunked_prefill_size = 256\nsmoke = "require"\n')
    monkeypatch.setenv("GLASSGATE_MAX_REQUESTS", "5")
    found = read_settings(FLAGS)
    knobs = found.knobs
    assert (knobs.max_requests, knobs.chunked_prefill_size, knobs.max_prefill_tokens, knobs.page_size) == (
        5,
        256,
        1024,
        16,
    )
    assert knobs.max_extend_tokens is None
    assert found.smoke == "require"
    assert found.sources == {
        "max_requests": "GLASSGATE_MAX_REQUESTS", "chunked_prefill_size": "glassgate.toml", "smoke": "glassgate.toml",
        "max_prefill_tokens": "--max-prefill-tokens", "page_size": "--page-size",
    }  # fmt: skip


def test_without_anything_set_the_plug_in_is_careful():
    """By default it collects, warns of a smoke allocation that fails, and aborts no request."""
    found = read_settings()
    assert (found.collector, found.smoke, found.can_never, found.database, found.prometheus) == (
        True,
        "warn",
        False,
        None,
        None,
    )
    assert found.runs is None


def test_every_setting_is_read(monkeypatch, tmp_path):
    """Each setting that is no knob has its effect when it is set by its variable."""
    for name, value in (("HOME", str(tmp_path)), ("COLLECTOR", "off"), ("DATABASE", "/x/y.db"), ("PROMETHEUS", "9464"),
                        ("SMOKE", "OFF"), ("CAN_NEVER", "on"), ("PARK", "off")):  # fmt: skip
        monkeypatch.setenv(f"GLASSGATE_{name}", value)
    found = read_settings()
    assert (found.runs, found.collector, str(found.database)) == (tmp_path / "runs", False, "/x/y.db")
    assert (found.prometheus, found.smoke, found.can_never, found.park) == ("9464", "off", True, False)
    assert len(SETTING_SPECS) == 7


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("GLASSGATE_MAX_REQUESTS", "many", ["GLASSGATE_MAX_REQUESTS", "many"]),
        ("GLASSGATE_MAX_BUFFER_BYTES", "4 pounds", ["GLASSGATE_MAX_BUFFER_BYTES", "4GiB"]),
        ("GLASSGATE_MAX_REQUEST", "3", ["GLASSGATE_MAX_REQUEST", "GLASSGATE_MAX_REQUESTS"]),
        ("GLASSGATE_SMOKE", "maybe", ["GLASSGATE_SMOKE", "off, warn or require"]),
        ("GLASSGATE_CAN_NEVER", "perhaps", ["GLASSGATE_CAN_NEVER", "on or off"]),
        ("GLASSGATE_CONFIG", "/nowhere.toml", ["/nowhere.toml"]),
        ("GLASSGATE_CHUNKED_PREFILL_SIZE", "0", ["GLASSGATE_CHUNKED_PREFILL_SIZE", "from 1 to"]),
    ],
)
def test_a_bad_value_is_one_line_that_names_its_place(monkeypatch, variable, value, words):
    """What cannot be is an error of ours, on one line, with the variable and what it may be."""
    monkeypatch.setenv(variable, value)
    for read in (check_settings, read_settings):
        with pytest.raises(GlassgateError) as caught:
            read()
        assert all(word in str(caught.value) for word in words)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("max_request = 3\n", ["glassgate.toml", "max_request", "max_requests"]),
        ("max_requests = \n", ["glassgate.toml", "not TOML"]),
        ("max_requests = 'many'\n", ["glassgate.toml", "many"]),
        ("[max_requests]\nx = 1\n", ["glassgate.toml", "max_requests"]),
        ("smoke = 7\n", ["glassgate.toml", "require"]),
        ("\xff", ["glassgate.toml"]),
    ],
)
def test_a_bad_file_is_one_line_that_names_it(tmp_path, text, words):
    """A TOML file with an unknown key, a bad value or no TOML in it is an error that names the file."""
    (tmp_path / "cwd" / "glassgate.toml").write_bytes(text.encode("latin-1"))
    with pytest.raises(GlassgateError) as caught:
        read_settings()
    assert all(word in str(caught.value) for word in words)
    assert "\n" not in str(caught.value)


def test_knobs_are_checked_against_one_another_with_the_engines_flags(monkeypatch):
    """A page larger than the chunk is an error that names both places; by itself it would be none."""
    monkeypatch.setenv("GLASSGATE_CHUNKED_PREFILL_SIZE", "8")
    check_settings()
    with pytest.raises(KnobError, match=r"page_size 16.*GLASSGATE_CHUNKED_PREFILL_SIZE.*--page-size"):
        read_settings(FLAGS)


def test_what_the_engine_alone_sets_cannot_be_set_otherwise(monkeypatch):
    """A fixed knob with another value is an error with the flag to use; the same value is none."""
    monkeypatch.setenv("GLASSGATE_PAGE_SIZE", "16")
    assert read_settings(FLAGS, {"page_size": "the pool is laid out so"}).knobs.page_size == 16
    monkeypatch.setenv("GLASSGATE_PAGE_SIZE", "64")
    with pytest.raises(KnobError, match=r"GLASSGATE_PAGE_SIZE.*laid out so.*--page-size 64"):
        read_settings(FLAGS, {"page_size": "the pool is laid out so"})


@pytest.mark.parametrize("word", ["1", "true", "ON", " yes "])
def test_the_switch_has_words_for_on(monkeypatch, word):
    """GLASSGATE=1 and its like switch the plug-in on."""
    monkeypatch.setenv("GLASSGATE", word)
    assert switched_on()


def test_the_switch_is_off_unless_asked(monkeypatch):
    """Unset, empty, 0 or off is off; anything else is an error and not a guess."""
    assert not switched_on()
    for word in ("", "0", "off", "False"):
        monkeypatch.setenv("GLASSGATE", word)
        assert not switched_on()
    monkeypatch.setenv("GLASSGATE", "perhaps")
    with pytest.raises(InputError, match="perhaps"):
        switched_on()


def test_plug_in_and_command_line_know_the_same_names():
    """One list of names: what the command line accepts in file and environment, and what a plug-in does."""
    assert tuple(sorted(Settings.model_fields)) == tuple(sorted(SETTING_NAMES))
    assert {f"GLASSGATE_{name.upper()}" for name in SETTING_NAMES} < VARIABLES


@pytest.mark.parametrize("where", ["environment", "file"])
def test_plug_in_and_command_line_read_the_same_values(monkeypatch, tmp_path, where):
    """From the same environment or file both get the same knobs and the same home."""
    values = {"max_requests": "4", "max_buffer_bytes": "4GiB", "max_extend_tokens": "off", "chunked_prefill_size": "-1",
              "enforce": "off", "page_size": "1_6", "home": str(tmp_path / "h")}  # fmt: skip
    if where == "environment":
        for name, value in values.items():
            monkeypatch.setenv(f"GLASSGATE_{name.upper()}", value)
        monkeypatch.setenv("glassgate_max_cached_tokens", "77")
    else:
        text = "".join(f'{name} = "{value}"\n' for name, value in values.items())
        (tmp_path / "cwd" / "glassgate.toml").write_text(text + "max_cached_tokens = 77\n")
    plugin, command = read_settings(), load_settings()
    assert plugin.knobs == command.knobs({})
    assert plugin.runs == command.runs
    assert plugin.knobs.max_cached_tokens == 77


def test_a_user_without_a_home_folder_has_no_file(monkeypatch):
    """Where no home folder can be told the file is just not there."""
    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setenv("HOME", "")
    monkeypatch.setattr(os, "getuid", lambda: 987_654)
    assert read_settings().knobs.max_requests is None
    assert len(KNOB_SPECS) == 11
