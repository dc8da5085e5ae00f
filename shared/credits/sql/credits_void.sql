-- Release the hold of an invocation that was not dispatched. Returns false if it was dispatched or has ended.
CREATE OR REPLACE FUNCTION credits_void(p_id uuid) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    ended invocations;
BEGIN
    PERFORM credits_be_durable();
    UPDATE invocations i SET state = 'voided', ended_at = now()
    WHERE i.id = p_id AND i.state = 'held' RETURNING i.* INTO ended;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM credits_post(ended.organization_id, 'charge', p_id::text, 0, ended.hold, 1);
    IF ended.budget_ids IS NOT NULL THEN
        PERFORM credits_count(ended, 1, 0, 0, 0);
    END IF;
    RETURN true;
END $$;
