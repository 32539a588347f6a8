"""`python -m ui` is the `glassgate` command."""

import sys

from estimator.launch import main

sys.exit(main())
