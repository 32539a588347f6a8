-- What changed after a knob change, the latest change first: the minute before and the minute after it, or less if another
-- change comes nearer. Repeats are counted with the pass they repeat.
WITH spans AS (
    SELECT SpanName, TraceId, SpanId, Timestamp, Duration, SpanAttributes AS a, Events.Timestamp AS event_times,
        Events.Name AS event_names, Events.Attributes AS event_attributes
    FROM otel_traces
    WHERE ScopeName = 'glassgate' AND ResourceAttributes['glassgate.run.id'] = {run:String}
        AND ResourceAttributes['glassgate.run.rank'] = {rank:String}
    LIMIT 1 BY TraceId, SpanId
), changes AS (
    SELECT toUnixTimestamp64Nano(Timestamp) AS at_ns, a['glassgate.knob.who'] AS who,
        arrayStringConcat(arrayMap((k, o, n) -> concat(k, ' ', if(o = 'null', 'off', o), ' to ', if(n = 'null', 'off', n)),
            JSONExtract(a['glassgate.knob.names'], 'Array(String)'), JSONExtract(a['glassgate.knob.old'], 'Array(String)'),
            JSONExtract(a['glassgate.knob.new'], 'Array(String)')), ', ') AS change
    FROM spans WHERE SpanName = 'glassgate.knob_change' AND a['glassgate.knob.accepted'] = 'true'
), bounded AS (
    SELECT *, greatest(at_ns - 60000000000, lagInFrame(at_ns, 1, at_ns - 60000000000) OVER w) AS from_ns,
        least(at_ns + 60000000000, leadInFrame(at_ns, 1, at_ns + 60000000000) OVER w) AS until_ns
    FROM changes
    WINDOW w AS (ORDER BY at_ns ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)
    ORDER BY at_ns DESC LIMIT intDiv({limit:UInt64} + 1, 2)
), sides AS (
    SELECT at_ns, who, change, 'before' AS side, from_ns, at_ns AS until_ns FROM bounded
    UNION ALL SELECT at_ns, who, change, 'after', at_ns, until_ns FROM bounded
), repeats AS (
    SELECT toInt64(a['glassgate.pass.number']) AS pass, toInt64(a['glassgate.repeat.count']) AS count
    FROM spans WHERE SpanName = 'prefill.repeat'
), passes AS (
    SELECT toUnixTimestamp64Nano(Timestamp) AS start_ns, toInt64(a['glassgate.batch.requests']) AS members,
        toInt64(a['glassgate.batch.extend_tokens']) AS extend_tokens, 1 + r.count AS passes,
        if(a['glassgate.gate'] = '', 'nothing', concat(a['glassgate.gate'], '/', a['glassgate.reason'])) AS stop
    FROM spans LEFT JOIN repeats r ON r.pass = toInt64OrZero(a['glassgate.pass.number'])
    WHERE SpanName = 'prefill.pass'
), waits AS (
    SELECT toUnixTimestamp64Nano(Timestamp) + Duration AS admit_ns, Duration AS wait_ns
    FROM spans WHERE SpanName = 'prefill.queue' AND a['glassgate.queue.ended'] = 'admit'
        AND a['glassgate.queue.after'] = 'arrival'
), seen AS (
    SELECT s.at_ns AS at_ns, s.side AS side, sum(p.passes) AS passes, countIf(p.members > 0) AS batches,
        floor(100 * avgIf(p.members, p.members > 0) + 0.5) / 100 AS batch_requests,
        toInt64(floor(avgIf(p.extend_tokens, p.members > 0) + 0.5)) AS batch_extend_tokens,
        sumMap(map(p.stop, p.passes)) AS stops
    FROM sides s CROSS JOIN passes p WHERE p.start_ns >= s.from_ns AND p.start_ns < s.until_ns GROUP BY at_ns, side
), waited AS (
    SELECT s.at_ns AS at_ns, s.side AS side, toInt64(floor(avg(w.wait_ns))) AS admitted_wait_ns
    FROM sides s CROSS JOIN waits w WHERE w.admit_ns >= s.from_ns AND w.admit_ns < s.until_ns GROUP BY at_ns, side
)
SELECT s.at_ns AS at_unix_ns, s.who, s.change, s.side, n.passes, n.batches,
    if(n.batches = 0, NULL, n.batch_requests) AS batch_requests,
    if(n.batches = 0, NULL, n.batch_extend_tokens) AS batch_extend_tokens,
    nullIf(w.admitted_wait_ns, 0) AS admitted_wait_ns,
    arrayStringConcat(arrayMap(t -> concat(t.1, ' ', toDecimalString(floor(1000 * t.2 / n.passes + 0.5) / 10, 1), '%'),
        arraySort(t -> (-t.2, t.1), arrayZip(mapKeys(n.stops), mapValues(n.stops)))), ', ') AS stops
FROM sides s LEFT JOIN seen n ON n.at_ns = s.at_ns AND n.side = s.side
LEFT JOIN waited w ON w.at_ns = s.at_ns AND w.side = s.side
ORDER BY s.at_ns DESC, s.side DESC LIMIT {limit:UInt64}
