-- The batches with the highest estimated buffers, beside the limit their members were checked against and what the
-- start-up smoke allocation reserved.
WITH spans AS (
    SELECT SpanName, TraceId, SpanId, Timestamp, Duration, SpanAttributes AS a, Events.Timestamp AS event_times,
        Events.Name AS event_names, Events.Attributes AS event_attributes
    FROM otel_traces
    WHERE ScopeName = 'glassgate' AND ResourceAttributes['glassgate.run.id'] = {run:String}
        AND ResourceAttributes['glassgate.run.rank'] = {rank:String}
    LIMIT 1 BY TraceId, SpanId
), limits AS (
    SELECT toInt64(a['glassgate.pass.number']) AS pass, max(toInt64(nullIf(JSONExtract(a['glassgate.check.limits'],
        'Array(Int64)')[indexOf(JSONExtract(a['glassgate.check.gates'], 'Array(String)'), 'buffer_bytes')], 0))) AS bytes
    FROM spans WHERE SpanName = 'prefill.decision' GROUP BY pass
)
SELECT toInt64(a['glassgate.pass.number']) AS pass, toInt64(a['glassgate.batch.requests']) AS members,
    toInt64(a['glassgate.batch.extend_tokens']) AS extend_tokens,
    toInt64(a['glassgate.buffer.estimated_bytes']) AS peak_bytes, l.bytes AS limit_bytes,
    toInt64OrNull(a['glassgate.buffer.smoke_allocated_bytes']) AS smoke_bytes,
    floor(1000 * peak_bytes / smoke_bytes + 0.5) / 10 AS share_of_smoke
FROM spans LEFT JOIN limits l ON l.pass = toInt64OrZero(a['glassgate.pass.number'])
WHERE SpanName = 'prefill.pass' AND a['glassgate.batch.requests'] != '0' AND a['glassgate.buffer.estimated_bytes'] != ''
ORDER BY peak_bytes DESC, pass LIMIT {limit:UInt64}
