-- Host-cache hits that were found and not loaded, by reason, and the tokens computed again for it.
WITH spans AS (
    SELECT SpanName, TraceId, SpanId, Timestamp, Duration, SpanAttributes AS a, Events.Timestamp AS event_times,
        Events.Name AS event_names, Events.Attributes AS event_attributes
    FROM otel_traces
    WHERE ScopeName = 'glassgate' AND ResourceAttributes['glassgate.run.id'] = {run:String}
        AND ResourceAttributes['glassgate.run.rank'] = {rank:String}
    LIMIT 1 BY TraceId, SpanId
), skipped AS (
    SELECT a['glassgate.host_hit.reason'] AS reason, toInt64OrZero(a['glassgate.host_hit.matched_tokens']) AS matched,
        a['glassgate.outcome'] IN ('admit', 'admit_chunk') AS entered
    FROM spans WHERE SpanName = 'prefill.decision' AND a['glassgate.host_hit.status'] = 'skipped'
)
SELECT reason, count() AS looks, sum(matched) AS matched_tokens, sum(entered) AS admitted,
    sumIf(matched, entered) AS recomputed_tokens
FROM skipped WHERE reason NOT IN ('', 'none_resident') AND matched > 0
GROUP BY reason ORDER BY recomputed_tokens DESC, matched_tokens DESC LIMIT {limit:UInt64}
