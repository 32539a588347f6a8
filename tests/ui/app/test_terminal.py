"""The screen in a real terminal, by way of tmux."""

import os
import shlex
import shutil
import signal
import subprocess
import time
import uuid

import pytest

TMUX = shutil.which("tmux")
pytestmark = pytest.mark.skipif(TMUX is None, reason="tmux is not installed; it is the terminal of this test")


class Terminal:
    """A tmux session of its own server, with a shell in it."""

    def __init__(self, environment, size):
        self._name = f"glassgate-{uuid.uuid4().hex[:8]}"
        columns, lines = size
        self._tmux("-f", "/dev/null", "new-session", "-d", "-s", "t", "-x", str(columns), "-y", str(lines), "env", "-i",
                   *(f"{name}={value}" for name, value in environment.items()), "PS1=ready>", "TERM=screen-256color",
                   "sh")  # fmt: skip
        self.wait_for("ready>")

    def _tmux(self, *words):
        told = subprocess.run([TMUX, "-L", self._name, *words], capture_output=True, text=True, check=True)
        return told.stdout

    @property
    def text(self):
        """What is on the terminal."""
        return self._tmux("capture-pane", "-p", "-t", "t")

    def press(self, *keys):
        """Send keys as tmux names them."""
        self._tmux("send-keys", "-t", "t", *keys)

    def run(self, command):
        """Type a command."""
        self._tmux("send-keys", "-t", "t", "-l", shlex.join(command))
        self.press("Enter")

    def run_text(self, line):
        """Type a line of the shell as it is."""
        self._tmux("send-keys", "-t", "t", "-l", line)
        self.press("Enter")

    @property
    def modes(self):
        """Whether the alternate screen is on, mouse reporting, and its SGR form."""
        return self._tmux(
            "display-message", "-p", "-t", "t", "#{alternate_on} #{mouse_any_flag} #{mouse_sgr_flag}"
        ).strip()

    def wait_for(self, words, gone=()):
        """Wait until words are on the terminal, and others are not."""
        until = time.monotonic() + 60
        while time.monotonic() < until:
            text = self.text
            if words in text and not any(each in text for each in gone):
                return text
            time.sleep(0.1)
        raise AssertionError(f"{words!r} did not come:\n{self.text}")

    def close(self):
        """End the server of this terminal."""
        subprocess.run([TMUX, "-L", self._name, "kill-server"], capture_output=True, check=False)


@pytest.fixture
def terminal(environment, request):
    """A terminal of 120 columns and 35 lines, or of the size that the test names."""
    size = getattr(request, "param", (120, 35))
    wanted = {name: value for name, value in environment.items() if name not in ("COLUMNS", "LINES", "PS1", "TERM")}
    opened = Terminal(wanted, size)
    yield opened
    opened.close()


@pytest.mark.parametrize("terminal", [(80, 24), (140, 45)], indirect=True)
def test_the_screen_comes_up_in_a_terminal_and_leaves_it_as_it_was(terminal, command, recording):
    """Headline and gates are there; a key works; q leaves a terminal in which the shell goes on."""
    terminal.run([*command, "ui", str(recording)])
    text = terminal.wait_for("run recording")
    assert "Batches" in text
    assert "ended" in text
    terminal.press("3")
    assert "kv_capacity" in terminal.wait_for("headroom", gone=("Batches",))
    terminal.press("q")
    terminal.wait_for("ready>", gone=("Gates",))
    terminal.run(["echo", "the shell", "goes on"])
    assert terminal.wait_for("the shell goes on\n")
    terminal.run(["stty", "-a"])
    text = terminal.wait_for(" icanon")
    assert "-icanon" not in text
    assert "-echo " not in text


def test_control_c_leaves_too(terminal, command, recording):
    """What everybody tries first works."""
    terminal.run([*command, "ui", str(recording)])
    terminal.wait_for("Batches")
    terminal.press("C-c")
    terminal.wait_for("ready>", gone=("Batches",))
    terminal.run(["echo", "code", "is", "told"])
    terminal.wait_for("code is told\n")


@pytest.mark.parametrize("terminal", [(100, 30)], indirect=True)
def test_control_z_rests_in_the_shell_and_fg_brings_the_whole_screen_back(terminal, command, recording):
    """The shell has its terminal while the screen rests; afterwards all of the screen is drawn, and keys work."""
    terminal.run([*command, "ui", str(recording)])
    terminal.wait_for("Waiting room")
    terminal.press("C-z")
    terminal.wait_for("ready>", gone=("Batches",))
    assert terminal.modes == "0 0 0"
    terminal.run(["echo", "the shell", "has it"])
    terminal.wait_for("the shell has it\n")
    terminal.run(["fg"])
    for part in ("run recording", "5 min", "Batches", "closed by", "Pass 184", "Waiting room", "Gates", "1 live"):
        terminal.wait_for(part, gone=("the shell has it",))
    terminal.press("3")
    terminal.wait_for("headroom", gone=("Batches",))
    terminal.press("q")
    terminal.wait_for("the shell has it", gone=("headroom",))


@pytest.mark.parametrize(("name", "code"), [("INT", 130), ("TERM", 143), ("HUP", 129)])
def test_a_signal_gives_the_terminal_back(terminal, command, recording, name, code):
    """SIGINT, SIGTERM and SIGHUP leave the alternate screen and the mouse as they were, and the code of the signal."""
    terminal.run(["echo", "before"])
    # The shell tells the pid of what it becomes, so that no other process is meant.
    told = f"sh -c 'echo $$ > pid; exec {shlex.join([*command, 'ui', str(recording)])}'; echo code $?"
    terminal.run_text(f"cd {shlex.quote(str(recording.parent))}; {told}")
    terminal.wait_for("Waiting room")
    os.kill(int((recording.parent / "pid").read_text()), getattr(signal, f"SIG{name}"))
    assert "before" in terminal.wait_for(f"code {code}\n", gone=("Batches",))
    assert terminal.modes == "0 0 0"


@pytest.mark.parametrize("terminal", [(80, 24), (140, 45)], indirect=True)
def test_a_draft_is_previewed_in_a_terminal(terminal, command, recording):
    """In a real terminal the preview begins, the screen answers keys while it is made, and its figures come."""
    terminal.run([*command, "ui", str(recording)])
    terminal.wait_for("run recording")
    terminal.press("6")
    terminal.wait_for("max_requests")
    terminal.press("Down", "Down")
    terminal.wait_for("max_requests: ")
    terminal.press("Enter")
    terminal.wait_for("max_requests (requests)")
    terminal.press("3", "Enter")
    terminal.wait_for("draft  max_requests 8 req -> 3 req")
    terminal.press("v")
    terminal.wait_for("preview  5 min before")
    terminal.press("?")
    terminal.wait_for("Help: Knobs")
    terminal.press("Escape")
    text = terminal.wait_for("tokens a second", gone=("Help: Knobs",))
    assert "fidelity" in text
    assert "what if" in text
    terminal.press("q")
    terminal.wait_for("ready>", gone=("Knobs",))


@pytest.mark.parametrize("terminal", [(80, 24), (140, 45)], indirect=True)
def test_two_runs_beside_each_other_in_a_terminal(terminal, command, recording):
    """`--beside` opens both; Escape leads to the screen of the first, q out of it, and the shell goes on."""
    terminal.run([*command, "ui", str(recording), "--beside", str(recording)])
    terminal.wait_for("0 rows part")
    terminal.wait_for("the same on both sides")
    terminal.press("n")
    terminal.wait_for("no row parts")
    terminal.press("Escape")
    terminal.wait_for("Waiting room")
    terminal.press("q")
    terminal.wait_for("ready>", gone=("Batches",))
