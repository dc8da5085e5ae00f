-- Give back the holds of invocations that nobody dispatched in time.
CREATE OR REPLACE FUNCTION credits_release_overdue(p_limit integer) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    released bigint := 0;
    freed record;
BEGIN
    PERFORM credits_be_durable();
    FOR freed IN
        WITH due AS (
            SELECT id FROM invocations WHERE state = 'held' AND lease_until <= now()
            ORDER BY lease_until LIMIT p_limit FOR UPDATE SKIP LOCKED
        ), ended AS (
            UPDATE invocations i SET state = 'expired', ended_at = now() FROM due WHERE i.id = due.id
            RETURNING i.organization_id, i.hold
        )
        SELECT organization_id, count(*) AS invocations, sum(hold)::bigint AS hold
        FROM ended GROUP BY organization_id ORDER BY organization_id
    LOOP
        PERFORM credits_post(freed.organization_id, 'charge', '', 0, freed.hold, freed.invocations::integer);
        released := released + freed.invocations;
    END LOOP;
    RETURN released;
END $$;
