"""SGLang without a GPU, for tests. Entry points of its plug-in system lead here."""


def platform() -> str:
    """The class of the platform, by its full name."""
    return "glassgate_sglang_cpu.platform.NativePlatform"
