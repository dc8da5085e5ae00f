-- Recompute the daily sums of the days in [p_from, p_to) from the hourly sums, of one organization or of all.
CREATE OR REPLACE FUNCTION credits_roll_up_days(p_from timestamptz, p_to timestamptz, p_organization_id uuid) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO usage_days AS d (
        organization_id, day, model, user_id, identity_id, principal_id, deployment_id, api_key_id, distribution_id,
        invocations, prompt_tokens, completion_tokens, cached_tokens, cache_write_tokens, reasoning_tokens, cost
    )
    SELECT organization_id, date_trunc('day', hour, 'UTC'), model, user_id, identity_id, principal_id, deployment_id,
        api_key_id, distribution_id, sum(invocations), sum(prompt_tokens), sum(completion_tokens), sum(cached_tokens),
        sum(cache_write_tokens), sum(reasoning_tokens), sum(cost)
    FROM usage_hours
    WHERE hour >= p_from AND hour < p_to AND (p_organization_id IS NULL OR organization_id = p_organization_id)
    GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9
    ON CONFLICT ON CONSTRAINT uq_usage_days_group DO UPDATE SET
        invocations = excluded.invocations, prompt_tokens = excluded.prompt_tokens,
        completion_tokens = excluded.completion_tokens, cached_tokens = excluded.cached_tokens,
        cache_write_tokens = excluded.cache_write_tokens, reasoning_tokens = excluded.reasoning_tokens,
        cost = excluded.cost
    WHERE (d.invocations, d.prompt_tokens, d.completion_tokens, d.cached_tokens, d.cache_write_tokens,
            d.reasoning_tokens, d.cost)
        IS DISTINCT FROM (excluded.invocations, excluded.prompt_tokens, excluded.completion_tokens,
            excluded.cached_tokens, excluded.cache_write_tokens, excluded.reasoning_tokens, excluded.cost);
END $$;
