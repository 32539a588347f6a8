"""The verdicts of SGLang's adder by their names, and the class of the shapes that it selects."""

from typing import Final

from sglang.srt.managers.schedule_policy import AddReqResult, _PrefillAdmission

CONTINUE: Final = AddReqResult.CONTINUE
NO_TOKEN: Final = AddReqResult.NO_TOKEN
OTHER: Final = AddReqResult.OTHER
Shape: Final = _PrefillAdmission
