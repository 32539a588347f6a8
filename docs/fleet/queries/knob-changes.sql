-- Knob changes asked for while the run went on: who, from what, to what, and if not accepted why not.
WITH spans AS (
    SELECT SpanName, TraceId, SpanId, Timestamp, Duration, SpanAttributes AS a, Events.Timestamp AS event_times,
        Events.Name AS event_names, Events.Attributes AS event_attributes
    FROM otel_traces
    WHERE ScopeName = 'glassgate' AND ResourceAttributes['glassgate.run.id'] = {run:String}
        AND ResourceAttributes['glassgate.run.rank'] = {rank:String}
    LIMIT 1 BY TraceId, SpanId
)SELECT toUnixTimestamp64Nano(Timestamp) AS at_unix_ns, a['glassgate.knob.who'] AS who, knob,
    if(old = 'null', NULL, old) AS old, if(new = 'null', NULL, new) AS new, a['glassgate.knob.accepted'] AS accepted,
    a['glassgate.why'] AS why, toInt64(a['glassgate.knob.revision']) AS revision
FROM spans ARRAY JOIN JSONExtract(a['glassgate.knob.names'], 'Array(String)') AS knob,
    JSONExtract(a['glassgate.knob.old'], 'Array(String)') AS old,
    JSONExtract(a['glassgate.knob.new'], 'Array(String)') AS new
WHERE SpanName = 'glassgate.knob_change' ORDER BY Timestamp LIMIT {limit:UInt64}
