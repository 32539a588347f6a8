"""The screen's data layer: what an operator asks to see and what the store answers. It knows no terminal."""
