"""One request from its arrival to its end, as the serving loop keeps it."""

from controller.engines.replay.cache import Hold
from controller.engines.replay.workload import WorkloadRequest, blocks_covering


class InFlight(Hold):
    """A request in the loop and what it holds. Tokens unless said."""

    __slots__ = (
        "admitted", "allowed", "arrival_ns", "birth", "done", "generated", "ignore_eos", "joined",
        "last_step", "number", "output", "prompt", "workload_prompt",
    )  # fmt: skip

    joined: int
    """Its place in the order of joining the running batch; -1 while it is not in it."""
    birth: int
    """The step of the running batch at which it would have had no token yet."""
    last_step: int
    """The step at which its last token would be out if it generated all it may; room is held back until then."""

    def __init__(self, number: int, request: WorkloadRequest) -> None:
        self.number = number
        self.arrival_ns = request.arrival_ns
        self.workload_prompt = request.prompt_tokens
        self.prompt = request.prompt_tokens
        """What prefill computes; after a retraction with the tokens generated before it."""
        self.output = request.output_tokens
        self.allowed = request.max_new_tokens or request.output_tokens
        """Output it may generate."""
        self.ignore_eos = request.ignore_eos
        self.generated = 0
        self.done = 0
        """Prompt tokens in the cache or computed."""
        self.admitted = False
        """Some pass has admitted it before."""
        self.joined = -1


def known_tokens(request: WorkloadRequest, block_tokens: int) -> int:
    """Tokens of a request's prompt and output whose content has block ids.

    Blocks that do not go on past the prompt say nothing of output, not even of output in the prompt's last block.
    """
    prompt, blocks = request.prompt_tokens, len(request.blocks)
    if blocks <= blocks_covering(prompt, block_tokens):
        return min(prompt, blocks * block_tokens)
    return min(prompt + request.output_tokens, blocks * block_tokens)
