"""What the plug-ins for real engines stand on: settings, the record beside an engine, faults, knob requests, ranks.

Nothing here imports an engine, torch, OpenTelemetry, SQLite or pydantic. A plug-in goes like this:

- `estimator.entry` is the entry point. Under GLASSGATE=1 and a supported version it calls `install()` of
  `controller.engines.<engine>.install`. A GlassgateError from there stops the start with its words; anything else
  leaves the engine as it is.
- `read_settings(aliases, fixed)` gives the settings in force, the engine's own flags being what they stand on.
- `announce_run()` where the engine's processes are started, so that all ranks share the run's id.
- `EngineRecord.begin(EngineIdentity(...), settings, Faults("SGLang"))` in each scheduler process, once pool and ranks
  are known. It starts the collector beside the engine.
- `begin_or_stand_aside(...)` around that start, and `warn_or_refuse(...)` for a smoke allocation that failed somewhere.
- In each pass: `record.passed(...)` with what `Recorder.passed` takes, before the batch is returned. What the plug-in
  does beside that stands under `faults.add` or `faults.contained`, with the stock class behind it.
- `record.arrived(...)`, `record.note(...)` for what happens between passes.
- Knobs: with `InProcess` take what is in `record.taken` at a pass boundary, ask `controller.knob_turning.answer`, and
  tell `record.turned(answer)`. With `Http` every rank gets the numbers of `broadcast.KEYS` at one step: `from_numbers`,
  then `answer`, then `record.turned(answer, number=...)`. With `NoWay(why)` requests are refused with that reason.
- `record.stand_aside(why)` when the stock class decides from here on; `record.close(reason)` at the end, which also
  comes by itself when the process exits.
"""

from controller.engines.plugin.broadcast import from_numbers, to_numbers
from controller.engines.plugin.faults import Faults, read_faults
from controller.engines.plugin.identity import EngineIdentity
from controller.engines.plugin.record import EngineRecord
from controller.engines.plugin.run_id import announce_run, shared_run_id
from controller.engines.plugin.settings import PluginSettings, check_settings, read_settings, switched_on
from controller.engines.plugin.smoke import warn_or_refuse
from controller.engines.plugin.start import begin_or_stand_aside
from controller.engines.plugin.status import Http, InProcess, NoWay, PluginStatus, read_status
from controller.engines.plugin.supported import SGLANG, SUPPORTED, VLLM, fit

__all__ = [
    "SGLANG",
    "SUPPORTED",
    "VLLM",
    "EngineIdentity",
    "EngineRecord",
    "Faults",
    "Http",
    "InProcess",
    "NoWay",
    "PluginSettings",
    "PluginStatus",
    "announce_run",
    "begin_or_stand_aside",
    "check_settings",
    "fit",
    "from_numbers",
    "read_faults",
    "read_settings",
    "read_status",
    "shared_run_id",
    "switched_on",
    "to_numbers",
    "warn_or_refuse",
]
