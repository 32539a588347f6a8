"""Search: knobs that serve a span better, looked for with Optuna over its replay."""

from __future__ import annotations

import json
import os
import warnings
from collections import deque
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from controller.whole_file import FILE_MODE
from estimator.errors import GlassgateError, NotFoundError, UsageError
from ui.whatif.figures import Figures
from ui.whatif.goal import Aim, Bound, keeps
from ui.whatif.space import Ladder, places_of, values_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from concurrent.futures import Future

    from optuna.study import Study
    from optuna.trial import FrozenTrial, Trial

    from controller.knobs import Knobs
    from ui.whatif.recorded import Recorded
    from ui.whatif.span import Span
    from ui.whatif.steps import Steps
    from ui.whatif.workers import Tried, Workers

TOGETHER: Final = 16
"""Points under way at once. A point is chosen when the one so many before it is told, whatever the number of processes
and whichever ends first, so that a seed gives the same points on any machine; more processes than these stand idle."""
STARTUP: Final = 16
"""Points chosen at random before the search learns from them."""
ALIKE: Final = 1e-3
"""Goals that differ by no more, as a share of them, count as alike."""
NEAREST: Final = 5
"""Points that are told where none keeps the bounds."""
_WORST: Final = 1e9
_KNOBS: Final = "knobs"
_FIGURES: Final = "figures"
_WHY: Final = "why"
_QUESTION: Final = "question"


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is searched: goals (the first one chooses), bounds, ladders, and knobs set for every point."""

    aims: tuple[Aim, ...]
    bounds: tuple[Bound, ...]
    space: tuple[Ladder, ...]
    fixed: dict[str, Any]

    def asked(self, recorded: Recorded, span: Span, steps: Steps) -> dict[str, Any]:
        """The question with what it is asked of, in plain words: two studies are one where these are equal."""
        return {
            "format": 1,
            "run": recorded.name,
            "rank": recorded.rank,
            "since_ns": span.since_ns,
            "until_ns": span.until_ns,
            "begin_ns": span.begin_ns,
            "steps": steps.model.name,
            "aims": [[each.metric, each.maximise] for each in self.aims],
            "bounds": [[each.metric, each.upper, each.limit] for each in self.bounds],
            "space": [[each.knob, list(each.values)] for each in self.space],
            "fixed": self.fixed,
        }


class Point(NamedTuple):
    """One set of knobs that was tried, with what it did."""

    number: int
    values: dict[str, Any]
    figures: Figures

    def better(self, other: Point, question: Question) -> bool:
        """Whether it is at least as good in every goal and every bounded figure, and better in one."""
        return _above(self.standing(question), other.standing(question))

    def standing(self, question: Question) -> tuple[float, ...]:
        """Every goal and every bounded figure, greater ones better."""
        goals = [aim.of(self.figures) * (1 if aim.maximise else -1) for aim in question.aims]
        return (*goals, *(-bound.excess(self.figures) for bound in question.bounds))


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a search came to."""

    tried: int
    """Points that were tried, in this and earlier sittings."""
    failed: int
    """Points that could not be served at all."""
    current: Point
    """The knobs as they were."""
    frontier: tuple[Point, ...]
    """Points that keep every bound and that no other one is better than; the best in the first goal first."""
    best: Point | None
    """The best of them in the first goal; None where no point keeps the bounds."""
    nearest: tuple[Point, ...]
    """Where none does, the points that are least beyond them."""


class Search:
    """One study in a storage. Points are tried in batches; between them it may be interrupted and taken up again.

    `storage` is a file, or a URL that Optuna knows. The same seed, question and number of points tried before give the
    same points. Raises UsageError without Optuna, for a storage that cannot be opened, or for a study that another
    question was asked of.
    """

    def __init__(
        self, question: Question, asked: dict[str, Any], *, storage: str, name: str = "", seed: int = 0
    ) -> None:
        optuna = self._optuna = _optuna()
        self.question = question
        self.name = name or study_name(asked)
        self._where = storage
        text = json.dumps(asked, sort_keys=True)
        with self._storing():
            study = optuna.create_study(
                storage=_storage(storage),
                study_name=self.name,
                directions=["maximize" if aim.maximise else "minimize" for aim in question.aims],
                load_if_exists=True,
            )
            known = study.user_attrs.get(_QUESTION)
            if known is None:
                study.set_user_attr(_QUESTION, text)
            before = len(study.get_trials(deepcopy=False))
        if known not in (None, text):
            raise UsageError(
                f"study {self.name} in {storage} was asked another question; give this one another name with --study"
            )
        study.sampler = optuna.samplers.TPESampler(seed=seed + before, n_startup_trials=STARTUP)
        self._study: Study = study
        self._distributions = {
            each.knob: optuna.distributions.IntDistribution(0, len(each.values) - 1) for each in question.space
        }
        self._seen: dict[str, Future[Tried]] = {}

    @contextmanager
    def _storing(self) -> Iterator[None]:
        """What reads the study or adds to it. Raises UsageError where that fails."""
        try:
            yield
        except GlassgateError:
            raise
        except Exception as error:  # noqa: BLE001 - each kind of storage has errors of its own
            told = _first_line(error)
            root: BaseException = error
            while root.__cause__ is not None:
                root = root.__cause__
            if (first := _first_line(root)) not in told:
                told = f"{told} ({first})"
            raise UsageError(f"--storage {self._where}: the study cannot be kept there: {told}") from None

    @property
    def done(self) -> int:
        """Points that were tried already; those that were given up before they were answered were not."""
        return sum(_KNOBS in trial.user_attrs for trial in self._trials())

    def run(
        self,
        workers: Workers,
        knobs: Knobs,
        points: int,
        *,
        tell: Callable[[int, Point | None], None] | None = None,
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        """Try points until there are so many, or `stopped` says so; the first one is `knobs` as they are.

        `tell` is told after each how many there are, and the best so far. What is being tried when it is stopped is
        tried to its end and kept; what no process has begun with is given up. An earlier sitting may have ended before
        its first point did: that is tried anew.
        """
        current = self._current(knobs)
        missing = all(trial.user_attrs.get(_KNOBS) != current for trial in self._trials())
        if missing:
            with self._storing():
                self._study.enqueue_trial(dict(places_of(self.question.space, knobs)))
        best = self._best(self._points())
        under_way: deque[tuple[Trial, dict[str, Any], Future[Tried]]] = deque()
        try:
            while True:
                while len(under_way) < TOGETHER and not stopped():
                    if self.done + len(under_way) >= points and not missing:
                        break
                    missing = False
                    trial, values = self._ask()
                    under_way.append((trial, values, self._begin(workers, values)))
                if not under_way:
                    return
                trial, values, answer = under_way[0]
                if stopped() and answer.cancel():
                    self._give_up(trial, values)
                    under_way.popleft()
                    continue
                point = self._tell(trial, values, answer.result())
                under_way.popleft()
                best = self._best([each for each in (best, point) if each is not None])
                if tell is not None:
                    tell(self.done, best)
        except BaseException:
            for trial, values, _ in under_way:
                with suppress(GlassgateError):  # where the storage is what failed
                    self._give_up(trial, values)
            raise

    def found(self, knobs: Knobs) -> Found:
        """What the search has come to. Raises NotFoundError where `knobs` as they are were not tried or failed."""
        points = self._points()
        current = self._current(knobs)
        as_is = next((point for point in points if point.values == current), None)
        if as_is is None:
            failed = [each.user_attrs.get(_WHY) for each in self._trials() if each.user_attrs.get(_KNOBS) == current]
            why = failed[0] if failed else "the search was stopped before it tried them; run it again"
            raise NotFoundError(f"the knobs as they are have no figures to compare with: {why}")
        keeping = [point for point in points if keeps(self.question.bounds, point.figures)]
        first: dict[tuple[float, ...], Point] = {}  # of those that are just as good
        for point in keeping:
            first.setdefault(point.standing(self.question), point)
        frontier = [point for mine, point in first.items() if not any(_above(other, mine) for other in first)]
        aim = self.question.aims[0]
        frontier.sort(key=lambda point: (aim.of(point.figures) * (-1 if aim.maximise else 1), point.number))
        return Found(
            tried=self.done,
            failed=sum(_WHY in trial.user_attrs for trial in self._trials()),
            current=as_is,
            frontier=tuple(frontier),
            best=self._best(points),
            nearest=() if keeping else tuple(sorted(points, key=self._beyond)[:NEAREST]),
        )

    def _current(self, knobs: Knobs) -> dict[str, Any]:
        """The values of a point at which the knobs are as they were."""
        return values_at(self.question.space, places_of(self.question.space, knobs)) | self.question.fixed

    def _beyond(self, point: Point) -> tuple[float, int]:
        """By how much a point breaks the bounds, all together."""
        return sum(max(0.0, bound.excess(point.figures)) for bound in self.question.bounds), point.number

    def _points(self) -> list[Point]:
        """Every point that was tried and has figures, the first one first."""
        found = []
        for trial in self._trials():
            attrs: Mapping[str, Any] = trial.user_attrs
            if _FIGURES in attrs and _KNOBS in attrs:
                found.append(Point(trial.number, dict(attrs[_KNOBS]), Figures(**attrs[_FIGURES])))
        return found

    def _best(self, points: list[Point]) -> Point | None:
        """The best of those that keep every bound."""
        best: Point | None = None
        for point in points:
            if keeps(self.question.bounds, point.figures) and (best is None or beats(point, best, self.question)):
                best = point
        return best

    def _trials(self) -> list[FrozenTrial]:
        """Every point of the study, as the storage has it."""
        with self._storing():
            return self._study.get_trials(deepcopy=False)

    def _ask(self) -> tuple[Trial, dict[str, Any]]:
        with self._storing():
            trial = self._study.ask(dict(self._distributions))
        return trial, values_at(self.question.space, trial.params) | self.question.fixed

    def _give_up(self, trial: Trial, values: dict[str, Any]) -> None:
        """Leave a point untried, so that nobody waits for it."""
        self._seen.pop(_key(values), None)
        with self._storing():
            self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)

    def _begin(self, workers: Workers, values: dict[str, Any]) -> Future[Tried]:
        """The answer for some knobs; those that were tried before are not tried again."""
        key = _key(values)
        if key not in self._seen:
            self._seen[key] = workers.submit(values)
        return self._seen[key]

    def _tell(self, trial: Trial, values: dict[str, Any], answer: Tried) -> Point | None:
        """Keep the answer in the study."""
        figures = answer.figures
        goals = [] if figures is None else [aim.of(figures) for aim in self.question.aims]
        with self._storing():
            trial.set_user_attr(_KNOBS, values)
            if figures is None or any(abs(goal) == float("inf") for goal in goals):
                trial.set_user_attr(_WHY, answer.why or "no request was answered")
                self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)
                return None
            for bound in self.question.bounds:
                trial.set_constraint(bound.text, min(_WORST, bound.excess(figures)))
            trial.set_user_attr(_FIGURES, figures.as_dict())
            self._study.tell(trial, goals)
        return Point(trial.number, values, figures)


def beats(point: Point, other: Point, question: Question) -> bool:
    """Whether a point is better in the first goal; where both are as good, whether its requests wait less."""
    aim, quick = question.aims[0], Aim("ttft_mean", maximise=False)
    mine, theirs = aim.of(point.figures), aim.of(other.figures)
    if abs(mine - theirs) <= ALIKE * max(abs(mine), abs(theirs)):
        return quick.of(point.figures) < quick.of(other.figures)
    return mine > theirs if aim.maximise else mine < theirs


def _above(mine: tuple[float, ...], theirs: tuple[float, ...]) -> bool:
    """Whether one standing is at least as good as another in everything, and better in something."""
    return mine != theirs and all(one >= two for one, two in zip(mine, theirs, strict=True))


def study_name(asked: dict[str, Any]) -> str:
    """The name of the study of a question: the run, and eight digits that stand for the rest."""
    digits = blake2b(json.dumps(asked, sort_keys=True).encode(), digest_size=4).hexdigest()
    return f"{asked['run']}-{digits}"


def _key(values: Mapping[str, Any]) -> str:
    return json.dumps(values, sort_keys=True)


def _optuna() -> Any:
    try:
        import optuna  # noqa: PLC0415 - half a second, and an extra
    except ImportError:
        raise UsageError("a search needs Optuna; install glassgate[tune]") from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)  # storages that work here
    return optuna


def _storage(named: str) -> Any:
    """The storage that a file or a URL names."""
    from optuna import storages  # noqa: PLC0415 - as above
    from optuna.storages import journal  # noqa: PLC0415 - as above

    if named.startswith("redis"):
        return journal.JournalStorage(journal.JournalRedisBackend(named))
    if named.startswith("grpc://"):
        host, _, port = named.removeprefix("grpc://").partition(":")
        if not host or not (port or "0").isdecimal():
            raise UsageError(f"--storage {named} is no address; write grpc://HOST:PORT")
        return storages.GrpcStorageProxy(host=host, port=int(port or 13000))
    if "://" in named:
        return named
    os.close(os.open(named, os.O_WRONLY | os.O_CREAT, FILE_MODE))  # Optuna would make it as the umask has it
    return journal.JournalStorage(journal.JournalFileBackend(named))


def _first_line(error: BaseException) -> str:
    details = getattr(error, "details", None)  # gRPC's, whose text begins with its type
    lines = str(details() if callable(details) else error).strip().splitlines() or [type(error).__name__]
    return lines[0][:200]
