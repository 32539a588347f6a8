"""The operator's screen, built on Textual. It reads `ui.view` and asks for nothing but a knob change."""
