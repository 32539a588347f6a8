"""Makes the helpers beside these tests importable, which importlib mode leaves to us."""

import sys
from pathlib import Path

HERE = str(Path(__file__).parent)
if HERE not in sys.path:
    sys.path.insert(0, HERE)
