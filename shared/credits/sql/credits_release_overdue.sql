-- Release the holds of invocations that were not dispatched before their lease ended. Returns their number.
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
            RETURNING i.organization_id, i.hold, i.id, i.budget_ids
        )
        SELECT organization_id, count(*) AS invocations, sum(hold)::bigint AS hold,
            array_agg(id) FILTER (WHERE budget_ids IS NOT NULL) AS budgeted
        FROM ended GROUP BY organization_id ORDER BY organization_id
    LOOP
        PERFORM credits_post(freed.organization_id, 'charge', '', 0, freed.hold, freed.invocations::integer);
        IF freed.budgeted IS NOT NULL THEN
            PERFORM credits_count(i, 1, 0, 0, 0) FROM invocations i WHERE i.id = ANY (freed.budgeted);
        END IF;
        released := released + freed.invocations;
    END LOOP;
    RETURN released;
END $$;
