-- Why batches stopped growing: passes by the gate and reason that closed them, repeats counted.
WITH spans AS (
    SELECT SpanName, TraceId, SpanId, Timestamp, Duration, SpanAttributes AS a, Events.Timestamp AS event_times,
        Events.Name AS event_names, Events.Attributes AS event_attributes
    FROM otel_traces
    WHERE ScopeName = 'glassgate' AND ResourceAttributes['glassgate.run.id'] = {run:String}
        AND ResourceAttributes['glassgate.run.rank'] = {rank:String}
    LIMIT 1 BY TraceId, SpanId
), stopped AS (
    SELECT a['glassgate.gate'] AS gate, a['glassgate.reason'] AS reason, 1 AS passes, 0 AS repeats
    FROM spans WHERE SpanName = 'prefill.pass'
    UNION ALL
    SELECT a['glassgate.gate'], a['glassgate.reason'], toInt64(a['glassgate.repeat.count']) AS n, n
    FROM spans WHERE SpanName = 'prefill.repeat'
)
SELECT nullIf(gate, '') AS gate, nullIf(reason, '') AS reason, sum(stopped.passes) AS passes,
    sum(stopped.repeats) AS repeats, floor(1000 * passes / sum(passes) OVER () + 0.5) / 10 AS share
FROM stopped GROUP BY stopped.gate, stopped.reason ORDER BY passes DESC, gate, reason LIMIT {limit:UInt64}
