-- The requests that waited longest for their first admission, or still waited when the run ended, and the gate most of
-- it was spent behind.
WITH spans AS (
    SELECT SpanName, TraceId, SpanId, Timestamp, Duration, SpanAttributes AS a, Events.Timestamp AS event_times,
        Events.Name AS event_names, Events.Attributes AS event_attributes
    FROM otel_traces
    WHERE ScopeName = 'glassgate' AND ResourceAttributes['glassgate.run.id'] = {run:String}
        AND ResourceAttributes['glassgate.run.rank'] = {rank:String}
    LIMIT 1 BY TraceId, SpanId
), waits AS (
    SELECT a['glassgate.request.id'] AS request, toInt64(a['glassgate.request.number']) AS number,
        a['glassgate.queue.ended'] AS ended, Duration AS wait_ns, toInt64(a['gen_ai.usage.input_tokens']) AS prompt_tokens,
        arrayFilter(e -> e['glassgate.gate'] != '', event_attributes) AS held
    FROM spans WHERE SpanName = 'prefill.queue' AND a['glassgate.queue.after'] = 'arrival'
    ORDER BY wait_ns DESC, number LIMIT {limit:UInt64}
), behind AS (
    SELECT number, e['glassgate.gate'] AS gate, e['glassgate.reason'] AS reason,
        sum(toInt64(e['glassgate.wait.duration_ns'])) AS ns
    FROM waits ARRAY JOIN held AS e GROUP BY number, gate, reason
    ORDER BY ns DESC LIMIT 1 BY number
)
SELECT w.request, multiIf(w.ended = 'admit', 'admitted', w.ended = 'run_end', 'waiting', w.ended) AS state, w.wait_ns,
    nullIf(b.gate, '') AS gate, nullIf(b.reason, '') AS reason, if(b.gate = '', NULL, b.ns) AS gate_ns,
    if(b.gate = '', NULL, floor(1000 * b.ns / w.wait_ns + 0.5) / 10) AS share, w.prompt_tokens
FROM waits w LEFT JOIN behind b ON b.number = w.number ORDER BY w.wait_ns DESC, w.number
