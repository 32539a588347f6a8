-- Why batches stopped growing, by stretches of {seconds}: passes, repeats counted and spread evenly over the time they
-- took, by the gate and reason that closed them.
WITH spans AS (
    SELECT SpanName, TraceId, SpanId, Timestamp, Duration, SpanAttributes AS a, Events.Timestamp AS event_times,
        Events.Name AS event_names, Events.Attributes AS event_attributes
    FROM otel_traces
    WHERE ScopeName = 'glassgate' AND ResourceAttributes['glassgate.run.id'] = {run:String}
        AND ResourceAttributes['glassgate.run.rank'] = {rank:String}
    LIMIT 1 BY TraceId, SpanId
), stopped AS (
    SELECT toUnixTimestamp64Nano(Timestamp) AS ns, a['glassgate.gate'] AS gate, a['glassgate.reason'] AS reason,
        1 AS passes, 0 AS repeats
    FROM spans WHERE SpanName = 'prefill.pass'
    UNION ALL
    SELECT toUnixTimestamp64Nano(Timestamp) + intDiv(Duration * each, greatest(n - 1, 1)), a['glassgate.gate'],
        a['glassgate.reason'], 1, 1
    FROM (SELECT *, toUInt64(a['glassgate.repeat.count']) AS n FROM spans WHERE SpanName = 'prefill.repeat')
    ARRAY JOIN range(n) AS each
)
SELECT fromUnixTimestamp64Nano(intDiv(ns, {seconds:Int64} * 1000000000) * {seconds:Int64} * 1000000000, 'UTC') AS at,
    nullIf(gate, '') AS gate, nullIf(reason, '') AS reason, sum(stopped.passes) AS passes,
    sum(stopped.repeats) AS repeats, floor(1000 * passes / sum(passes) OVER (PARTITION BY at) + 0.5) / 10 AS share
FROM stopped GROUP BY at, stopped.gate, stopped.reason ORDER BY at, passes DESC, gate, reason LIMIT {limit:UInt64}
