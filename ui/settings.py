"""Settings from the command line, the environment and a TOML file.

Precedence, first wins: a command's own option; an environment variable `GLASSGATE_<NAME>`; the TOML file named by
`GLASSGATE_CONFIG`, else `./glassgate.toml`, else `~/.config/glassgate/glassgate.toml`; the default.
"""

from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from controller.knobs import KNOB_SPECS, Knobs
from controller.settings import as_path, check_names, config_file, read_toml
from estimator.errors import InputError, shown

KnobText = str | int | float | bool | None


class Settings(BaseSettings):
    """What an operator may set once instead of on every command line. Knobs carry the names of `Knobs`.

    Those that only a plug-in reads stand here too, since they stand in the same file; `controller.settings` lists all.
    """

    model_config = SettingsConfigDict(env_prefix="GLASSGATE_", extra="forbid", env_ignore_empty=True)

    home: Path | None = Field(default=None, description="folder that keeps the runs")
    collector: KnobText = None
    database: KnobText = None
    prometheus: KnobText = None
    smoke: KnobText = None
    can_never: KnobText = None
    park: KnobText = None
    shared_kv_batching: KnobText = None
    max_requests: KnobText = None
    max_extend_tokens: KnobText = None
    max_cached_tokens: KnobText = None
    max_buffer_bytes: KnobText = None
    buffer_safety_percent: KnobText = None
    chunked_prefill_size: KnobText = None
    max_prefill_tokens: KnobText = None
    page_size: KnobText = None
    load_back_threshold: KnobText = None
    enforce: KnobText = None

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The order of precedence: arguments, environment, TOML file."""
        del dotenv_settings, file_secret_settings
        path = config_file()
        toml = () if path is None else (InitSettingsSource(settings_cls, read_toml(path)),)
        return (init_settings, env_settings, *toml)

    @property
    def runs(self) -> Path | None:
        """The folder that keeps the runs, or None for the default one."""
        return None if self.home is None else as_path(str(self.home), "home") / "runs"

    def knobs(self, overrides: dict[str, Any], base: dict[str, Any] | None = None) -> Knobs:
        """The knobs in force: `overrides` (a command's options) before these settings before `base`."""
        given = {spec.name: getattr(self, spec.name) for spec in KNOB_SPECS if spec.name in self.model_fields_set}
        return Knobs.parse({**(base or {}), **given, **overrides})


def load_settings() -> Settings:
    """The settings of environment and file. Raises InputError naming the file or variable and what is wrong."""
    check_names()
    try:
        return Settings()
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        names = ", ".join(Settings.model_fields)
        raise InputError(
            f"setting {name!r} is {shown(first['input'])}: {first['msg']}; the settings are {names}"
        ) from None
    except OSError as error:
        raise InputError(f"{config_file()}: {error.strerror}") from None
