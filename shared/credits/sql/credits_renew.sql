-- Renew the leases of a worker's calls and store their streamed tokens, in one statement. Returns the number of renewed
-- calls. A call that is being settled at this moment is skipped.
CREATE OR REPLACE FUNCTION credits_renew(
    p_ids uuid[], p_tokens uuid[], p_streamed_tokens bigint[], p_lease interval
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    renewed bigint;
BEGIN
    WITH mine AS MATERIALIZED (
        SELECT i.id, at.streamed_tokens
        FROM unnest(p_ids, p_tokens, p_streamed_tokens) AS at (id, token, streamed_tokens)
        JOIN invocations i ON i.id = at.id AND i.dispatch_token = at.token
        WHERE i.state IN ('dispatched', 'unresolved') FOR UPDATE OF i SKIP LOCKED
    )
    UPDATE invocations i
    SET streamed_tokens = greatest(i.streamed_tokens, mine.streamed_tokens), lease_until = now() + p_lease
    FROM mine WHERE i.id = mine.id;
    GET DIAGNOSTICS renewed = ROW_COUNT;
    RETURN renewed;
END $$;
