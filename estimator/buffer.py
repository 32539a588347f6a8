"""A temporary buffer: what it is, how many bytes it takes, and where that is known from."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from estimator.context import RunContext
from estimator.geometry import Geometry
from estimator.sizes import Sizes

# Bytes as a sum of coefficient x symbol. An empty mapping: this run has no such buffer.
Terms = Mapping[str, int]
Formula = Callable[[Geometry, RunContext], Terms]

NONE: Terms = {}


@dataclass(frozen=True, slots=True)
class Buffer:
    """One temporary buffer. `part` is the group it is recorded under, `bound` says exact or upper."""

    name: str
    part: str
    section: int
    says: str
    formula: str
    source: str
    bound: str
    terms: Formula

    def bytes(self, geometry: Geometry, context: RunContext, sizes: Sizes) -> int:
        """Return the bytes this buffer takes for a batch of these sizes."""
        return sum(
            coefficient * getattr(sizes, symbol) for symbol, coefficient in self.terms(geometry, context).items()
        )


class Section:
    """The buffers of one section of the fact sheet, collected as they are written down."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.buffers: list[Buffer] = []

    def buffer(self, part: str, formula: str, source: str, *, bound: str = "exact") -> Callable[[Formula], Formula]:
        """Register a formula under its function's name. `source` is a place in SGLang 0.5.23."""

        def register(terms: Formula) -> Formula:
            says = (terms.__doc__ or "").strip()
            self.buffers.append(Buffer(terms.__name__, part, self.number, says, formula, source, bound, terms))
            return terms

        return register
