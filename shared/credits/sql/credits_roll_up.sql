-- Recompute the rollups of the hours that records in [p_from, p_to) fall into, of one organization or of all.
-- Only under the lock of the mark: two recomputations of an hour could otherwise end with the older one's sums.
CREATE OR REPLACE FUNCTION credits_roll_up(p_from timestamptz, p_to timestamptz, p_organization_id uuid) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    written bigint;
BEGIN
    INSERT INTO usage_hours AS h (
        organization_id, hour, model, user_id, identity_id, principal_id, deployment_id, api_key_id, distribution_id,
        invocations, prompt_tokens, completion_tokens, cached_tokens, reasoning_tokens, cost
    )
    SELECT organization_id, date_trunc('hour', occurred_at, 'UTC'), model, user_id, identity_id, principal_id,
        deployment_id, api_key_id, distribution_id, count(*), sum(prompt_tokens), sum(completion_tokens), sum(cached_tokens),
        sum(reasoning_tokens), sum(cost)
    FROM usage_records
    WHERE occurred_at >= date_trunc('hour', p_from, 'UTC') AND occurred_at < p_to
        AND (p_organization_id IS NULL OR organization_id = p_organization_id)
    GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9
    ON CONFLICT ON CONSTRAINT uq_usage_hours_group DO UPDATE SET
        invocations = excluded.invocations, prompt_tokens = excluded.prompt_tokens,
        completion_tokens = excluded.completion_tokens, cached_tokens = excluded.cached_tokens,
        reasoning_tokens = excluded.reasoning_tokens, cost = excluded.cost
    WHERE (h.invocations, h.prompt_tokens, h.completion_tokens, h.cached_tokens, h.reasoning_tokens, h.cost)
        IS DISTINCT FROM (excluded.invocations, excluded.prompt_tokens, excluded.completion_tokens,
            excluded.cached_tokens, excluded.reasoning_tokens, excluded.cost);
    GET DIAGNOSTICS written = ROW_COUNT;
    RETURN written;
END $$;
