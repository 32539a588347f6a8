"""The load-back plan: whether a host-cache hit is worth asking for, and may be asked for, before anything is touched.

All or nothing. Owner lanes and the allocator are checked by the load itself; see `AdmissionPass`.
"""

from controller.request import PrefixMatch
from controller.vocabulary import HostHit


def plan_load_back(match: PrefixMatch, threshold: int, quota: int) -> tuple[int, HostHit]:
    """Tokens to load from the host, and the plan or the reason for a skip (then the tokens are 0).

    `threshold` is the shortest hit worth a transfer. `quota` is the device room a load may use: free + evictable
    - the candidate's own unlocked device hit - tokens promised in this pass. Free tokens alone would turn away hits
    that eviction makes room for (SGLang 0.5.23, `UnifiedRadixCache.load_back(mem_quota=...)`).
    """
    wanted = match.host_tokens
    if match.host_answer is not HostHit.PLANNED:
        return 0, match.host_answer
    if wanted == 0:
        return 0, HostHit.NONE_RESIDENT
    if wanted < threshold:
        return 0, HostHit.BELOW_THRESHOLD
    if wanted > quota:
        return 0, HostHit.QUOTA
    return wanted, HostHit.PLANNED
