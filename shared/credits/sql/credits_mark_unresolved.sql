-- Mark dispatched invocations whose lease has ended as unresolved. Their holds stay until the cost is known.
CREATE OR REPLACE FUNCTION credits_mark_unresolved(p_limit integer) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    marked bigint;
BEGIN
    WITH due AS (
        SELECT id FROM invocations WHERE state = 'dispatched' AND lease_until <= now()
        ORDER BY lease_until LIMIT p_limit FOR UPDATE SKIP LOCKED
    )
    UPDATE invocations i SET state = 'unresolved' FROM due WHERE i.id = due.id;
    GET DIAGNOSTICS marked = ROW_COUNT;
    RETURN marked;
END $$;
