"""What every test stands on."""

from hypothesis import settings

# Speed is asserted in benchmarks, never in tests: a busy machine fails no property.
settings.register_profile("glassgate", deadline=None)
settings.load_profile("glassgate")
