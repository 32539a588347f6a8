-- The runs whose spans are here, the latest begun first, by rank.
WITH spans AS (
    SELECT ResourceAttributes['glassgate.run.id'] AS run, toInt64(ResourceAttributes['glassgate.run.rank']) AS rank,
        ResourceAttributes['glassgate.run.engine'] AS engine, SpanAttributes['gen_ai.request.model'] AS model,
        Timestamp AS at
    FROM otel_traces WHERE ScopeName = 'glassgate' AND SpanName = 'prefill.pass'
    LIMIT 1 BY TraceId, SpanId
)SELECT run, rank, engine, model, min(at) AS first_span, max(at) AS last_span, count() AS passes
FROM spans GROUP BY run, rank, engine, model ORDER BY first_span DESC, run, rank LIMIT {limit:UInt64}
