-- Passes in which another rank of the run decided differently from {rank}.
WITH spans AS (
    SELECT SpanName, SpanAttributes AS a, ResourceAttributes['glassgate.run.rank'] AS rank
    FROM otel_traces
    WHERE ScopeName = 'glassgate' AND ResourceAttributes['glassgate.run.id'] = {run:String}
        AND SpanName IN ('prefill.pass', 'prefill.decision')
    LIMIT 1 BY TraceId, SpanId
), decided AS (
    SELECT rank, toInt64(a['glassgate.pass.number']) AS pass, arraySort(groupArrayIf((
        toInt64OrZero(a['glassgate.pass.position']), a['glassgate.request.number'], a['glassgate.outcome'],
        a['glassgate.gate'], a['glassgate.reason'], a['glassgate.request.extend_tokens'],
        a['glassgate.request.device_hit_tokens'], a['glassgate.host_hit.status'], a['glassgate.host_hit.reason']
    ), SpanName = 'prefill.decision')) AS decisions, anyIf((
        a['glassgate.waiting.requests'], a['glassgate.waiting.not_reached'], a['glassgate.batch.requests'],
        a['glassgate.batch.extend_tokens'], a['glassgate.batch.cached_tokens'], a['glassgate.batch.loaded_tokens'],
        a['glassgate.gate'], a['glassgate.reason'], a['glassgate.knob.revision']
    ), SpanName = 'prefill.pass') AS result
    FROM spans GROUP BY rank, pass
)
SELECT p.pass, toInt64(p.rank) AS rank, toInt64(o.rank) AS other_rank, toInt64(p.result.3) AS members,
    toInt64(o.result.3) AS other_members, toInt64(p.result.4) AS extend_tokens, toInt64(o.result.4) AS other_extend_tokens,
    nullIf(p.result.7, '') AS gate, nullIf(o.result.7, '') AS other_gate
FROM decided p INNER JOIN decided o ON o.pass = p.pass
WHERE p.rank = {rank:String} AND o.rank != p.rank AND (p.result != o.result OR p.decisions != o.decisions)
ORDER BY other_rank, p.pass LIMIT {limit:UInt64}
