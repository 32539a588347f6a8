"""A hand that presses the keys of commands, and the register of what each command is checked by."""

import pytest

from tests.ui.app.script import Script, drive, screen, settle, text_of


class Checks:
    """How each command of some scopes is checked."""

    def __init__(self, **commands):
        self.commands = commands
        self._checks = {}

    def __call__(self, scope, *names):
        """Registers how commands of these names are checked, by a hand that can press their key."""

        def register(function):
            for name in names:
                self._checks[scope, name] = function
            return function

        return register

    @property
    def every(self):
        """Each key of each command, as parameters (scope, command, key)."""
        return [
            pytest.param(scope, command, key, id=f"{scope}-{command.name}-{key}")
            for scope, commands in self.commands.items()
            for command in commands
            for key in command.keys.split(",")
        ]

    def run(self, scope, command, key):
        """Press the key on a screen of its own; KeyError for a command that nobody checks."""
        check = self._checks[scope, command.name]
        app = screen(Script())

        async def do(pilot):
            await check(Hand(app, pilot, command, key))

        drive(app, do)


class Hand:
    """Presses keys: those of the command that is checked, and others."""

    def __init__(self, app, pilot, command, key):
        self.app, self.pilot, self.command, self.key = app, pilot, command, key

    async def press(self):
        """Press the command's key, and wait."""
        await self.keys(self.key)

    async def keys(self, *keys):
        """Press keys, and wait."""
        await self.pilot.press(*keys)
        if not self.app._exit:
            await settle(self.pilot)

    @property
    def text(self):
        """What is on the screen."""
        return text_of(self.app)
