"""Whether the tests of each real engine run here: they need the engine, which `make engines` installs."""

import pytest

from controller.engines.plugin import SUPPORTED, fit


@pytest.mark.parametrize("name", SUPPORTED)
def test_the_engine_installed_here_is_a_supported_one(name):
    """An engine whose tests run is of a version that its plug-in was written for."""
    engine = SUPPORTED[name]
    found = fit(engine)
    if found.installed is None:
        pytest.skip(f"{engine.title} is not installed here, so tests/engines/{name} is not run; `make engines` runs it")
    assert found.supported, found.words
