-- Who overtook whom: requests that others overtook, by arriving later and entering earlier, those overtaken for the
-- longest time first; how many did, and the first of them.
WITH spans AS (
    SELECT SpanName, TraceId, SpanId, Timestamp, Duration, SpanAttributes AS a, Events.Timestamp AS event_times,
        Events.Name AS event_names, Events.Attributes AS event_attributes
    FROM otel_traces
    WHERE ScopeName = 'glassgate' AND ResourceAttributes['glassgate.run.id'] = {run:String}
        AND ResourceAttributes['glassgate.run.rank'] = {rank:String}
    LIMIT 1 BY TraceId, SpanId
), waits AS (
    SELECT a['glassgate.request.id'] AS request, toInt64(a['glassgate.request.number']) AS number,
        toUnixTimestamp64Nano(Timestamp) AS began_ns, began_ns + Duration AS until_ns,
        if(a['glassgate.queue.ended'] = 'admit', until_ns, NULL) AS admit_ns,
        toInt64(a['gen_ai.usage.input_tokens']) AS prompt_tokens
    FROM spans WHERE SpanName = 'prefill.queue' AND a['glassgate.queue.after'] = 'arrival'
), overtaken AS (
    SELECT *, min(admit_ns) OVER (ORDER BY number DESC ROWS UNBOUNDED PRECEDING) AS earliest_ns FROM waits
), latest AS (
    SELECT * FROM overtaken WHERE earliest_ns < until_ns ORDER BY until_ns - earliest_ns DESC, number LIMIT {limit:UInt64}
)
SELECT any(l.request) AS request, any(l.until_ns - l.began_ns) AS wait_ns, count() AS overtaken_by,
    argMin(o.request, (o.admit_ns, o.number)) AS first_overtaker, any(l.prompt_tokens) AS prompt_tokens
FROM latest l CROSS JOIN waits o
WHERE o.number > l.number AND o.began_ns > l.began_ns AND o.admit_ns < l.until_ns
GROUP BY l.number ORDER BY any(l.until_ns - l.earliest_ns) DESC, l.number
