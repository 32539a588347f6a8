"""Colours, letters and marks: one of each for a gate or a kind of token, the same everywhere on the screen.

A style is a name (`$gate-kv-capacity`) that Textual looks up in the theme when it paints, so that nothing here knows
which theme is on. Each style goes with a letter or a mark, since the third theme has no colour at all.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec
from textual.theme import Theme

from controller.vocabulary import Gate

ThemeName = Literal["dark", "light", "plain"]
THEMES: Final[tuple[ThemeName, ...]] = ("dark", "light", "plain")
"""`plain` uses no colour: letters, marks, bold, dim and reverse."""


class Mark(msgspec.Struct, frozen=True):
    """A character, its style, and what it stands for."""

    sign: str
    style: str
    word: str


GATE_LETTERS: Final[dict[str, str]] = {
    Gate.BATCH_MODE.word: "m",
    Gate.REQUEST_SLOTS.word: "s",
    Gate.REQUEST_COUNT.word: "r",
    Gate.KV_CAPACITY.word: "k",
    Gate.EXTEND_TOKENS.word: "e",
    Gate.CACHED_TOKENS.word: "c",
    Gate.BUFFER_BYTES.word: "b",
    Gate.INPUT_TOKENS.word: "i",
    Gate.CHUNK_TOKENS.word: "h",
    Gate.BATCH_FULL.word: "F",
    Gate.PREFILL_DELAY.word: "D",
    Gate.SHARD_SCRATCH.word: "H",
    Gate.TILE_BUDGET.word: "T",
    Gate.STATE_SLOTS.word: "S",
    Gate.LORA.word: "L",
    Gate.POOLING_MODE.word: "M",
    Gate.STORAGE.word: "O",
    Gate.LOAD_BACK.word: "B",
    Gate.UNATTRIBUTED.word: "?",
    Gate.REQUEST_STATE.word: "R",
    Gate.ENCODER.word: "E",
    Gate.PAUSED.word: "P",
}
"""Small letters are gates of the ladder, capitals those that only an engine has."""
UNKNOWN_GATE: Final = Mark("#", "$gate-unknown", "unknown gate")
NOTHING_BOUND: Final = Mark(".", "dim", "nothing bound")
NO_PASS: Final = Mark(" ", "", "no pass")

DEVICE: Final = Mark("▓", "$tokens-device", "device-cached")
LOADED: Final = Mark("▒", "$tokens-loaded", "host-loaded")
COMPUTED: Final = Mark("█", "$tokens-computed", "computed")
ROOM: Final = Mark("·", "dim", "room")

DIM: Final = "dim"
STRONG: Final = "bold"
GOOD: Final = "$good"
WARN: Final = "$warn"
BAD: Final = "bold $bad"
NEVER: Final = "bold reverse $bad"
"""What can never fit; reversed, so that it stands out without colour."""

PRESENCES: Final[dict[str, Mark]] = {
    "live": Mark("●", "bold $good", "live"),
    "idle": Mark("○", "$good", "idle"),
    "ended": Mark("■", "dim", "ended"),
    "engine_gone": Mark("✗", "bold reverse $bad", "engine gone"),
    "collector_gone": Mark("!", "bold reverse $warn", "collector gone"),
    "recording": Mark("▶", "dim", "recording"),
}
VERDICTS: Final[dict[str, Mark]] = {
    "pass": Mark("✓", "$good", "pass"),
    "refuse": Mark("✗", "bold $bad", "refuse"),
    "exempt": Mark("+", "$warn", "exempt"),
    "off": Mark("-", "dim", "off"),
    "would_refuse": Mark("~", "bold $warn", "would refuse"),
    "not_evaluated": Mark(" ", "dim", "not evaluated"),
}
OUTCOMES: Final[dict[str, Mark]] = {
    "admit": Mark("✓", "$good", "admit"),
    "admit_chunk": Mark("½", "$good", "admit_chunk"),
    "park": Mark("‖", "bold $warn", "park"),
    "wait": Mark("…", "$warn", "wait"),
    "refuse": Mark("✗", "bold $bad", "refuse"),
}


def gate_mark(gate: str | None) -> Mark:
    """A gate's letter and style; "" is a pass that nothing closed, None no pass at all."""
    if gate is None:
        return NO_PASS
    if not gate:
        return NOTHING_BOUND
    letter = GATE_LETTERS.get(gate)
    return UNKNOWN_GATE if letter is None else Mark(letter, gate_style(gate), gate)


def gate_style(gate: str) -> str:
    """The style of a gate's name, letter and number."""
    return f"$gate-{gate.replace('_', '-')}" if gate in GATE_LETTERS else UNKNOWN_GATE.style


_DARK: Final = {
    "gate-batch-mode": "#b0b0b0",
    "gate-request-slots": "#e59ac0",
    "gate-request-count": "#ff9f5a",
    "gate-kv-capacity": "#ff6b6b",
    "gate-extend-tokens": "#f2cc60",
    "gate-cached-tokens": "#6cb6ff",
    "gate-buffer-bytes": "#d2a8ff",
    "gate-input-tokens": "#56d4bc",
    "gate-chunk-tokens": "#a5d26a",
    "gate-batch-full": "#c9a26d",
    "gate-prefill-delay": "#9fb0ff",
    "gate-shard-scratch": "#e2a0ff",
    "gate-tile-budget": "#ffb3d1",
    "gate-state-slots": "#ff9580",
    "gate-lora": "#8fd6ff",
    "gate-pooling-mode": "#b8e986",
    "gate-storage": "#7fd1ae",
    "gate-load-back": "#a99cff",
    "gate-unattributed": "#ffffff",
    "gate-request-state": "#d9c77e",
    "gate-encoder": "#ffc48c",
    "gate-paused": "#9aa5b1",
    "gate-unknown": "#ffffff",
    "tokens-device": "#4f7cac",
    "tokens-loaded": "#8e7cc3",
    "tokens-computed": "#adbac7",
    "good": "#57ab5a",
    "warn": "#e3b341",
    "bad": "#ff7b72",
    "line": "#3d444d",
    "line-focus": "#8b949e",
    "cursor": "#21303f",
}
_LIGHT: Final = {
    "gate-batch-mode": "#57606a",
    "gate-request-slots": "#a8307a",
    "gate-request-count": "#b35900",
    "gate-kv-capacity": "#c1121f",
    "gate-extend-tokens": "#8a6100",
    "gate-cached-tokens": "#0a5cc2",
    "gate-buffer-bytes": "#7a35c4",
    "gate-input-tokens": "#00756a",
    "gate-chunk-tokens": "#4a7300",
    "gate-batch-full": "#7a5a1e",
    "gate-prefill-delay": "#3949ab",
    "gate-shard-scratch": "#8e24aa",
    "gate-tile-budget": "#ad1457",
    "gate-state-slots": "#bf360c",
    "gate-lora": "#01579b",
    "gate-pooling-mode": "#33691e",
    "gate-storage": "#00695c",
    "gate-load-back": "#4527a0",
    "gate-unattributed": "#000000",
    "gate-request-state": "#6d5f00",
    "gate-encoder": "#8d4b00",
    "gate-paused": "#455a64",
    "gate-unknown": "#000000",
    "tokens-device": "#5b8dbf",
    "tokens-loaded": "#9a86cc",
    "tokens-computed": "#3d444d",
    "good": "#1a7f37",
    "warn": "#8f5f00",
    "bad": "#c1121f",
    "line": "#c4cad0",
    "line-focus": "#6e7781",
    "cursor": "#dbe9f9",
}
_PLAIN: Final = dict.fromkeys(_DARK, "ansi_default")
_PLAIN_TEXTUAL: Final = dict.fromkeys(
    (
        "ansi-background",
        "ansi-foreground",
        "block-cursor-background",
        "block-cursor-blurred-background",
        "block-cursor-blurred-foreground",
        "block-cursor-foreground",
        "block-hover-background",
        "border",
        "border-blurred",
        "button-color-foreground",
        "button-foreground",
        "footer-background",
        "footer-description-background",
        "footer-description-foreground",
        "footer-foreground",
        "footer-item-background",
        "footer-key-background",
        "footer-key-foreground",
        "input-cursor-background",
        "input-cursor-foreground",
        "input-selection-background",
        "input-selection-foreground",
        "link-background-hover",
        "link-color",
        "link-color-hover",
        "markdown-h1-color",
        "markdown-h2-color",
        "markdown-h3-color",
        "markdown-h4-color",
        "markdown-h5-color",
        "markdown-h6-color",
        "screen-selection-background",
        "screen-selection-foreground",
        "scrollbar",
        "scrollbar-active",
        "scrollbar-background",
        "scrollbar-background-active",
        "scrollbar-background-hover",
        "scrollbar-corner-color",
        "scrollbar-hover",
    ),
    "ansi_default",
)


def theme_name(name: ThemeName) -> str:
    """The name under which a theme is registered with Textual."""
    return f"glassgate-{name}"


def themes() -> tuple[Theme, ...]:
    """The three themes, for `App.register_theme`."""
    return (
        Theme(
            name=theme_name("dark"),
            primary="#6cb6ff",
            secondary="#8b949e",
            accent="#f2cc60",
            warning="#e3b341",
            error="#ff7b72",
            success="#57ab5a",
            foreground="#d0d7de",
            background="#0d1117",
            surface="#0d1117",
            panel="#161b22",
            variables={**_DARK, "block-cursor-text-style": "none"},
        ),
        Theme(
            name=theme_name("light"),
            primary="#0a5cc2",
            secondary="#57606a",
            accent="#8a6100",
            warning="#8f5f00",
            error="#c1121f",
            success="#1a7f37",
            foreground="#1f2328",
            background="#ffffff",
            surface="#ffffff",
            panel="#f3f5f7",
            dark=False,
            variables={**_LIGHT, "block-cursor-text-style": "none"},
        ),
        Theme(
            name=theme_name("plain"),
            ansi=True,
            primary="ansi_default",
            secondary="ansi_default",
            accent="ansi_default",
            warning="ansi_default",
            error="ansi_default",
            success="ansi_default",
            foreground="ansi_default",
            background="ansi_default",
            surface="ansi_default",
            panel="ansi_default",
            boost="ansi_default",
            variables={
                **_PLAIN,
                **_PLAIN_TEXTUAL,
                "block-cursor-text-style": "reverse",
                "input-cursor-text-style": "reverse",
                "footer-key-text-style": "bold",
            },
        ),
    )
