-- The standing alarms that were raised, the latest first, with what was measured and the request, gate and numbers.
WITH spans AS (
    SELECT SpanName, TraceId, SpanId, Timestamp, Duration, SpanAttributes AS a, Events.Timestamp AS event_times,
        Events.Name AS event_names, Events.Attributes AS event_attributes
    FROM otel_traces
    WHERE ScopeName = 'glassgate' AND ResourceAttributes['glassgate.run.id'] = {run:String}
        AND ResourceAttributes['glassgate.run.rank'] = {rank:String}
    LIMIT 1 BY TraceId, SpanId
), raised AS (
    SELECT event_time AS at, e FROM spans
    ARRAY JOIN event_names AS event_name, event_times AS event_time, event_attributes AS e
    WHERE event_name = 'glassgate.alarm_raised'
)
SELECT e['glassgate.alarm.name'] AS alarm, toUnixTimestamp64Nano(at) AS opened_unix_ns,
    toInt64(e['glassgate.alarm.threshold']) AS threshold, e['glassgate.alarm.unit'] AS unit,
    nullIf(e['glassgate.request.id'], '') AS request, nullIf(e['glassgate.gate'], '') AS gate,
    nullIf(e['glassgate.reason'], '') AS reason, toInt64OrNull(e['glassgate.observed']) AS observed,
    toInt64OrNull(e['glassgate.limit']) AS limit, e['glassgate.why'] AS detail
FROM raised ORDER BY at DESC, alarm LIMIT {limit:UInt64}
