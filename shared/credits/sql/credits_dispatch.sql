-- Acquire the right to call the provider. Returns the invocation, or no row if another worker has it or it has ended.
-- The same token is the same worker, which repeats the call because it lost the result.
CREATE OR REPLACE FUNCTION credits_dispatch(p_id uuid, p_token uuid, p_lease interval) RETURNS SETOF invocations
LANGUAGE plpgsql ROWS 1 AS $$
BEGIN
    PERFORM credits_be_durable();
    RETURN QUERY UPDATE invocations i
    SET state = 'dispatched', dispatch_token = p_token, lease_until = now() + p_lease
    WHERE i.id = p_id AND (
        (i.state = 'held' AND i.lease_until > now()) OR (i.state = 'dispatched' AND i.dispatch_token = p_token)
    ) RETURNING i.*;
END $$;
