-- Requests refused at once because they could not fit the empty pool, with what each would have needed.
WITH spans AS (
    SELECT SpanName, TraceId, SpanId, Timestamp, Duration, SpanAttributes AS a, Events.Timestamp AS event_times,
        Events.Name AS event_names, Events.Attributes AS event_attributes
    FROM otel_traces
    WHERE ScopeName = 'glassgate' AND ResourceAttributes['glassgate.run.id'] = {run:String}
        AND ResourceAttributes['glassgate.run.rank'] = {rank:String}
    LIMIT 1 BY TraceId, SpanId
)SELECT a['glassgate.request.id'] AS request, toInt64(a['glassgate.pass.number']) AS pass,
    toInt64(a['glassgate.request.prompt_tokens']) AS prompt_tokens,
    toInt64(a['glassgate.request.output_tokens']) AS output_tokens, toInt64(a['glassgate.observed']) AS observed,
    toInt64(a['glassgate.limit']) AS limit, toInt64(a['glassgate.short_by']) AS short_by, a['glassgate.unit'] AS unit
FROM spans WHERE SpanName = 'prefill.decision' AND a['glassgate.outcome'] = 'refuse'
ORDER BY pass, toInt64(a['glassgate.pass.position']) LIMIT {limit:UInt64}
