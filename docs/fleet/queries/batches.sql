-- What each batch was made of, the latest first: members, tokens computed and reused, and what closed it.
WITH spans AS (
    SELECT SpanName, TraceId, SpanId, Timestamp, Duration, SpanAttributes AS a, Events.Timestamp AS event_times,
        Events.Name AS event_names, Events.Attributes AS event_attributes
    FROM otel_traces
    WHERE ScopeName = 'glassgate' AND ResourceAttributes['glassgate.run.id'] = {run:String}
        AND ResourceAttributes['glassgate.run.rank'] = {rank:String}
    LIMIT 1 BY TraceId, SpanId
), entered AS (
    SELECT toInt64(a['glassgate.pass.number']) AS pass, arrayStringConcat(arrayMap(m -> m.2, arraySort(groupArray((
        toInt64(a['glassgate.pass.position']),
        if(a['glassgate.request.id'] = '', concat('#', a['glassgate.request.number']), a['glassgate.request.id'])
    )))), ' ') AS requests
    FROM spans WHERE SpanName = 'prefill.decision' AND a['glassgate.outcome'] IN ('admit', 'admit_chunk') GROUP BY pass
)
SELECT toInt64(a['glassgate.pass.number']) AS pass, toInt64(a['glassgate.waiting.requests']) AS queue,
    toInt64(a['glassgate.batch.requests']) AS members, toInt64(a['glassgate.batch.extend_tokens']) AS extend_tokens,
    toInt64(a['glassgate.batch.cached_tokens']) AS cached_tokens,
    toInt64(a['glassgate.batch.loaded_tokens']) AS host_loaded_tokens, nullIf(a['glassgate.gate'], '') AS gate,
    nullIf(a['glassgate.reason'], '') AS reason, toInt64(a['glassgate.waiting.not_reached']) AS not_reached,
    toInt64OrNull(a['glassgate.buffer.estimated_bytes']) AS peak_bytes, e.requests
FROM spans LEFT JOIN entered e ON e.pass = toInt64OrZero(a['glassgate.pass.number'])
WHERE SpanName = 'prefill.pass' AND a['glassgate.batch.requests'] != '0' ORDER BY pass DESC LIMIT {limit:UInt64}
