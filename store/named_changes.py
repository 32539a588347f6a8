"""Named queries about change: stops over time, the effect of a knob change, who overtook whom, ranks that differ."""

from typing import Final

from controller.knobs import KNOB_SPECS
from store.question import NamedQuery, columns_of
from store.ranks import ALIKE, DECISIONS_ALIKE

WINDOW_NS: Final = 60_000_000_000
"""A knob change is judged by so much time on either side of it, or less if another change comes nearer."""

_SWITCHES: Final = ", ".join(f"'{spec.name}'" for spec in KNOB_SPECS if spec.kind == "switch")


def switched(column: str) -> str:
    """A column of knobs' values in SQL, beside a column `knob`: a switch, kept as 1 or 0, is on or off."""
    return f"iif(knob IN ({_SWITCHES}), CASE {column} WHEN 0 THEN 'off' WHEN 1 THEN 'on' END, {column})"


STOPS_OVER_TIME: Final = NamedQuery(
    "stops-over-time",
    "Why batches stopped growing, in as many equal stretches of the run as rows are asked for: passes, repeats counted "
    "and spread evenly over the time they took, the gate that closed most of them, and the share of each.",
    columns_of("from_ns:at passes:passes repeats:passes gate reason share:percent stops"),
    """WITH RECURSIVE span AS (
    SELECT coalesce(start_ns, 0) AS began,
        max(1, (max(coalesce(end_ns, 0), last_ns) - coalesce(start_ns, 0)) / max(1, :limit) + 1) AS width
    FROM runs WHERE id = :run
), buckets AS (
    SELECT 0 AS bucket UNION ALL SELECT bucket + 1 FROM buckets WHERE bucket + 1 < :limit
), repeated AS (
    SELECT b.bucket, t.gate, t.reason, t.count, t.last_ns - t.first_ns AS length,
        max(0, s.began + b.bucket * s.width - t.first_ns) AS from_ns,
        min(t.last_ns - t.first_ns, s.began + (b.bucket + 1) * s.width - t.first_ns) AS until_ns,
        (t.last_ns - s.began) / s.width = b.bucket AS final
    FROM repeats t CROSS JOIN span s
    JOIN buckets b ON b.bucket BETWEEN (t.first_ns - s.began) / s.width AND (t.last_ns - s.began) / s.width
    WHERE t.run = :run
), stopped AS (
    SELECT (p.start_ns - s.began) / s.width AS bucket, p.closed_gate AS gate, p.closed_reason AS reason,
        count(*) AS passes, 0 AS repeats
    FROM passes p CROSS JOIN span s WHERE p.run = :run GROUP BY 1, 2, 3
    UNION ALL
    SELECT bucket, gate, reason, sum(passes), sum(passes) FROM (
        SELECT bucket, gate, reason,
            CASE WHEN final THEN count ELSE CAST(1.0 * count * until_ns / length AS INTEGER) END
            - CASE WHEN from_ns = 0 THEN 0 ELSE CAST(1.0 * count * from_ns / length AS INTEGER) END AS passes
        FROM repeated
    ) GROUP BY 1, 2, 3
), shares AS (
    SELECT s.bucket, g.gate, e.reason, sum(s.passes) AS passes,
        sum(sum(s.passes)) OVER bucket AS of, sum(sum(s.repeats)) OVER bucket AS repeats,
        row_number() OVER (PARTITION BY s.bucket ORDER BY sum(s.passes) DESC, s.gate, s.reason) AS place
    FROM stopped s LEFT JOIN gates g ON g.id = s.gate LEFT JOIN reasons e ON e.id = s.reason
    GROUP BY s.bucket, s.gate, s.reason
    WINDOW bucket AS (PARTITION BY s.bucket)
)
SELECT s.began + h.bucket * s.width AS from_ns, h.of AS passes, h.repeats, h.gate, h.reason,
    round(100.0 * h.passes / h.of, 1) AS share, (
        SELECT group_concat(stop, ', ') FROM (
            SELECT coalesce(i.gate || '/' || i.reason, 'nothing') || ' ' || round(100.0 * i.passes / i.of, 1) || '%'
                AS stop
            FROM shares i WHERE i.bucket = h.bucket ORDER BY i.place)
    ) AS stops
FROM shares h CROSS JOIN span s WHERE h.place = 1 ORDER BY h.bucket LIMIT :limit""",
)

KNOB_EFFECTS: Final = NamedQuery(
    "knob-effects",
    "What changed after a knob change, the latest change first: passes in the minute before and the minute after it "
    "(less if another change comes nearer), requests and tokens a batch, the wait of those admitted (means), and what "
    "closed the passes, repeats counted with the pass they repeat.",
    columns_of(
        "at_ns:at who change side window_ns:ns passes:passes batches:batches batch_requests batch_extend_tokens:tokens "
        "admitted_wait_ns:ns stops"
    ),
    f"""WITH changes AS (
    SELECT at_ns, revision, min(who) AS who,
        group_concat(
            knob || ' ' || coalesce({switched("old")}, 'off') || ' to ' || coalesce({switched("new")}, 'off'), ', '
        ) AS change
    FROM knob_changes WHERE run = :run AND accepted AND knob IS NOT NULL GROUP BY at_ns, revision
), bounded AS (
    SELECT c.*, max(c.at_ns - {WINDOW_NS}, coalesce(lag(c.at_ns) OVER inorder, r.start_ns, 0)) AS from_ns,
        min(c.at_ns + {WINDOW_NS}, coalesce(lead(c.at_ns) OVER inorder, r.last_ns + 1)) AS until_ns
    FROM changes c JOIN runs r ON r.id = :run WINDOW inorder AS (ORDER BY c.at_ns)
    ORDER BY c.at_ns DESC LIMIT (:limit + 1) / 2
), sides AS (
    SELECT at_ns, who, change, 'before' AS side, from_ns, at_ns AS until_ns FROM bounded
    UNION ALL SELECT at_ns, who, change, 'after', at_ns, until_ns FROM bounded
), seen AS (
    SELECT s.at_ns, s.side, p.number, p.members, p.extend_tokens, p.closed_gate, p.closed_reason, p.start_ns,
        1 + coalesce(t.count, 0) AS passes
    FROM sides s CROSS JOIN passes p ON p.run = :run AND p.start_ns >= s.from_ns AND p.start_ns < s.until_ns
    LEFT JOIN repeats t ON t.run = :run AND t.first_pass = p.number
), stopped AS (
    SELECT n.at_ns, n.side, coalesce(g.gate || '/' || e.reason, 'nothing') AS stop, sum(n.passes) AS passes,
        sum(sum(n.passes)) OVER (PARTITION BY n.at_ns, n.side) AS of
    FROM seen n LEFT JOIN gates g ON g.id = n.closed_gate LEFT JOIN reasons e ON e.id = n.closed_reason
    GROUP BY n.at_ns, n.side, n.closed_gate, n.closed_reason
), batches AS (
    SELECT at_ns, side, sum(passes) AS passes, sum(members > 0) AS batches,
        round(avg(nullif(members, 0)), 2) AS batch_requests,
        CAST(round(avg(CASE WHEN members > 0 THEN extend_tokens END)) AS INTEGER) AS batch_extend_tokens
    FROM seen GROUP BY at_ns, side
), waited AS (
    SELECT n.at_ns, n.side, CAST(avg(n.start_ns - q.arrival_ns) AS INTEGER) AS admitted_wait_ns
    FROM seen n
    CROSS JOIN decisions d ON d.run = :run AND d.pass = n.number AND d.outcome IN (0, 1) AND d.done_tokens = 0
    CROSS JOIN requests q ON q.run = :run AND q.number = d.request AND q.admit_pass = n.number
    GROUP BY n.at_ns, n.side
)
SELECT s.at_ns, s.who, s.change, s.side, s.until_ns - s.from_ns AS window_ns, coalesce(b.passes, 0) AS passes,
    coalesce(b.batches, 0) AS batches, b.batch_requests, b.batch_extend_tokens, w.admitted_wait_ns, (
        SELECT group_concat(each, ', ') FROM (
            SELECT stop || ' ' || round(100.0 * passes / of, 1) || '%' AS each FROM stopped t
            WHERE t.at_ns = s.at_ns AND t.side = s.side ORDER BY t.passes DESC, stop)
    ) AS stops
FROM sides s LEFT JOIN batches b ON b.at_ns = s.at_ns AND b.side = s.side
LEFT JOIN waited w ON w.at_ns = s.at_ns AND w.side = s.side
ORDER BY s.at_ns DESC, s.side DESC LIMIT :limit""",  # noqa: S608 - our own constants
)

# Requests are numbered as they arrive: behind one that was overtaken only those are read that came in its wait.
OVERTAKES: Final = NamedQuery(
    "overtakes",
    "Who overtook whom: requests that others overtook, by arriving later and entering in an earlier pass, those "
    "overtaken for the longest time first; how many did, the one that entered first, and the first five to arrive.",
    columns_of("request wait_ns:ns overtaken_by:requests first_overtaker first_pass overtakers prompt_tokens:tokens"),
    """WITH RECURSIVE waits AS (
    SELECT number, coalesce(admit_ns, end_ns, (SELECT last_ns FROM runs WHERE id = :run)) AS until_ns,
        min(admit_ns) OVER (ORDER BY number DESC ROWS UNBOUNDED PRECEDING) AS earliest_ns
    FROM requests WHERE run = :run
), latest AS (
    SELECT * FROM waits WHERE earliest_ns < until_ns ORDER BY until_ns - earliest_ns DESC, number LIMIT :limit
), overtaken AS (
    SELECT l.*, q.id, q.arrival_ns, q.prompt_tokens FROM latest l CROSS JOIN requests q ON q.run = :run
        AND q.number = l.number WHERE q.arrival_ns IS NOT NULL
), bisected AS (
    SELECT number, until_ns, number AS low, (SELECT max(number) FROM requests WHERE run = :run) AS high FROM overtaken
    UNION ALL
    SELECT b.number, b.until_ns,
        CASE WHEN coalesce(q.arrival_ns, 0) < b.until_ns THEN (b.low + b.high + 1) / 2 ELSE b.low END,
        CASE WHEN coalesce(q.arrival_ns, 0) < b.until_ns THEN b.high ELSE (b.low + b.high + 1) / 2 - 1 END
    FROM bisected b LEFT JOIN requests q ON q.run = :run AND q.number = (b.low + b.high + 1) / 2 WHERE b.low < b.high
), ranges AS (
    SELECT w.*, (SELECT max(b.high) FROM bisected b WHERE b.number = w.number AND b.low >= b.high) AS last_number
    FROM overtaken w
), counted AS (
    SELECT w.number, count(*) AS overtaken_by, min(o.admit_pass) AS first_pass, o.number AS other, o.id
    FROM ranges w CROSS JOIN requests o ON o.run = :run AND o.number > w.number AND o.number <= w.last_number
        AND o.arrival_ns > w.arrival_ns AND o.admit_ns < w.until_ns
    GROUP BY w.number
)
SELECT coalesce(w.id, '#' || w.number) AS request, w.until_ns - w.arrival_ns AS wait_ns, c.overtaken_by,
    coalesce(c.id, '#' || c.other) AS first_overtaker, c.first_pass, (
        SELECT group_concat(name, ' ') FROM (
            SELECT coalesce(o.id, '#' || o.number) AS name FROM requests o
            WHERE o.run = :run AND o.number > w.number AND o.number <= w.last_number AND o.arrival_ns > w.arrival_ns
                AND o.admit_ns < w.until_ns
            ORDER BY o.number LIMIT 5)
    ) || CASE WHEN c.overtaken_by > 5 THEN ' ...' ELSE '' END AS overtakers, w.prompt_tokens
FROM ranges w JOIN counted c ON c.number = w.number
ORDER BY w.until_ns - w.earliest_ns DESC, w.number""",
)

RANK_DIFFERENCES: Final = NamedQuery(
    "rank-differences",
    "Passes in which another rank of the run decided differently, the first of each number on: what either put into "
    "its batch and what closed it, and the first place at which their decisions part. Of a rank that recorded digests "
    "alone, only that it differed is known.",
    columns_of(
        "pass rank other_rank members:requests other_members:requests extend_tokens:tokens other_extend_tokens:tokens "
        "gate other_gate position"
    ),
    f"""WITH whole AS (
SELECT p.number AS pass, r.rank, x.rank AS other_rank, p.members, o.members AS other_members, p.extend_tokens,
    o.extend_tokens AS other_extend_tokens, g.gate, h.gate AS other_gate, (
        SELECT min(d.position) FROM decisions d
        LEFT JOIN decisions e ON e.run = x.id AND e.pass = d.pass AND e.position = d.position
        WHERE d.run = :run AND d.pass = p.number AND NOT {DECISIONS_ALIKE}
    ) AS position
FROM runs r JOIN runs x ON x.name = r.name AND x.rank_group IS r.rank_group AND x.id != r.id
CROSS JOIN passes p ON p.run = :run CROSS JOIN passes o ON o.run = x.id AND o.number = p.number
LEFT JOIN gates g ON g.id = p.closed_gate LEFT JOIN gates h ON h.id = o.closed_gate
WHERE r.id = :run AND NOT ({ALIKE} AND NOT EXISTS (
    SELECT 1 FROM decisions d LEFT JOIN decisions e ON e.run = x.id AND e.pass = d.pass AND e.position = d.position
    WHERE d.run = :run AND d.pass = p.number AND NOT {DECISIONS_ALIKE}))
)
SELECT * FROM whole
UNION ALL
SELECT d.pass, r.rank, x.rank, p.members, NULL, p.extend_tokens, NULL, g.gate, NULL, NULL
FROM runs n JOIN runs r ON r.name = n.name JOIN rank_differences d ON d.run = r.id JOIN runs x ON x.id = d.other
LEFT JOIN passes p ON p.run = d.run AND p.number = d.pass LEFT JOIN gates g ON g.id = p.closed_gate
WHERE n.id = :run
ORDER BY other_rank, pass LIMIT :limit""",  # noqa: S608 - our own constants
)
