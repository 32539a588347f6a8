"""What every test stands on."""

import signal

from hypothesis import settings

# Speed is asserted in benchmarks, never in tests: a busy machine fails no property.
settings.register_profile("glassgate", deadline=None)
settings.load_profile("glassgate")

# A shell that runs the tests in its background has them ignore the keyboard, and what they start would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
for each in (signal.SIGQUIT, signal.SIGHUP):
    signal.signal(each, signal.SIG_DFL)
