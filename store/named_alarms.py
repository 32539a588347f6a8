"""Named queries about what should not be: alarms, idle engines that refuse; and about what is not there any more."""

from typing import Final

from controller.vocabulary import NOT_READY_GATES
from store.question import NamedQuery, columns_of

_NOT_READY: Final = ", ".join(str(int(gate)) for gate in sorted(NOT_READY_GATES))

ALARMS: Final = NamedQuery(
    "alarms",
    "The standing alarms, those that stand first, then the latest: since when, how often, what was measured against "
    "which threshold, and the request, gate and numbers they are about.",
    columns_of(
        "alarm state opened_ns:at age_ns:ns count measured threshold unit request gate reason observed limit "
        "first_pass last_pass detail"
    ),
    """SELECT alarm, state, opened_ns, age_ns, count, measured, threshold, unit,
    coalesce(request_id, '#' || request) AS request, gate, reason, observed, limit_value AS "limit", first_pass,
    last_pass, detail
FROM v_alarms WHERE run = :run ORDER BY closed_ns IS NOT NULL, opened_ns DESC, number DESC LIMIT :limit""",
)

IDLE_REFUSALS: Final = NamedQuery(
    "idle-refusals",
    "Passes in which nothing ran, nothing was admitted, and the head of the queue was told to wait although it fits: "
    "another gate than kv_capacity refused it, or the pool was whole, and nothing was on its way.",
    columns_of(
        "pass start_ns:at request gate reason observed limit prompt_tokens:tokens free_tokens:tokens "
        "evictable_tokens:tokens reserved_tokens:tokens repeats:passes"
    ),
    f"""SELECT p.number AS pass, p.start_ns, coalesce(q.id, '#' || d.request) AS request, g.gate, e.reason, d.observed,
    d.limit_value AS "limit", d.prompt_tokens, p.free_tokens, p.evictable_tokens, p.reserved_tokens,
    coalesce(t.count, 0) AS repeats
FROM passes p INDEXED BY passes_idle JOIN runs r ON r.id = p.run
JOIN decisions d ON d.run = p.run AND d.pass = p.number AND d.position = 0
JOIN requests q ON q.run = d.run AND q.number = d.request
LEFT JOIN gates g ON g.id = d.gate LEFT JOIN reasons e ON e.id = d.reason
LEFT JOIN repeats t ON t.run = p.run AND t.first_pass = p.number
WHERE p.run = :run AND p.members = 0 AND p.running = 0 AND d.outcome = 3
    AND coalesce(d.gate, -1) NOT IN ({_NOT_READY})
    AND (json_extract(d.checks, '$[9]') IS NOT 1 OR p.free_tokens + p.evictable_tokens >= r.pool_tokens)
ORDER BY p.number LIMIT :limit""",  # noqa: S608 - integers of our own
)

PRUNED: Final = NamedQuery(
    "pruned",
    "What was dropped of any run to keep the database small or young, when and why, the latest first.",
    columns_of("run rank whole first_pass last_pass passes:passes decisions:decisions requests:requests pruned_at why"),
    """SELECT run_name AS run, rank, whole, first_pass, last_pass, passes, decisions, requests, pruned_at, why
FROM v_pruned ORDER BY at_unix_ns DESC, first_pass DESC LIMIT :limit""",
)
