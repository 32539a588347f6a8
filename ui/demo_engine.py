"""The demo's engine in a process of its own: it ends, with its record whole, when its standard input does.

`python -m ui.demo_engine SESSIONS SEED`. Whoever looks on holds the other end of that input, so that the engine never
outlives a screen that was closed or killed. Where the input is no pipe it goes on until its workload ends.
"""

import os
import select
import stat
import sys

from estimator.errors import GlassgateError
from ui.commands.demo import replay_for_screen
from ui.summary import print_summary


def input_ended() -> bool:
    """Whether whoever holds the other end of our standard input has closed it; never where it is no pipe."""
    try:
        if not stat.S_ISFIFO(os.fstat(0).st_mode):
            return False
        return bool(select.select([0], [], [], 0)[0]) and not os.read(0, 4096)
    except OSError:
        return True


def main() -> int:
    """Replay and print the summary; the exit code."""
    sessions, seed = map(int, sys.argv[1:3])
    try:
        print_summary(replay_for_screen(sessions, seed, over=input_ended).summary)
    except GlassgateError as error:
        sys.stderr.write(f"glassgate: {error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
