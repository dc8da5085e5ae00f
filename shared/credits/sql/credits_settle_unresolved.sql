-- Settle by estimate the invocations that are still unresolved after the grace period. Returns their number.
CREATE OR REPLACE FUNCTION credits_settle_unresolved(p_grace interval, p_limit integer) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    settled bigint := 0;
    i invocations;
BEGIN
    PERFORM credits_be_durable();
    FOR i IN
        WITH due AS MATERIALIZED (
            SELECT id FROM invocations WHERE state = 'unresolved' AND lease_until <= now() - p_grace
            ORDER BY lease_until LIMIT p_limit FOR UPDATE SKIP LOCKED
        ), ended AS (
            UPDATE invocations AS at SET state = 'settled', ended_at = now() FROM due WHERE at.id = due.id RETURNING at.*
        )
        SELECT * FROM ended ORDER BY organization_id
    LOOP
        -- The exact counts are lost. Streamed tokens were delivered and are charged with the prompt; otherwise nothing is.
        PERFORM credits_charge(i, 'failed', NULL, CASE WHEN i.streamed_tokens > 0 THEN i.estimated_prompt_tokens ELSE 0 END,
            i.streamed_tokens, 0, 0, true);
        settled := settled + 1;
    END LOOP;
    RETURN settled;
END $$;
