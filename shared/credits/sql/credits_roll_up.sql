-- Recompute the rollups of the hours with records in [p_from, p_to), of one organization or of all, and then the changed
-- days that are over. Returns the number of changed hourly rows.
-- The caller holds the lock of the mark: of two concurrent recomputations of an hour, the older sums could win otherwise.
CREATE OR REPLACE FUNCTION credits_roll_up(p_from timestamptz, p_to timestamptz, p_organization_id uuid) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    written bigint;
    changed_from timestamptz;
    days_from timestamptz;
    days_to timestamptz;
BEGIN
    WITH changed AS (
        INSERT INTO usage_hours AS h (
            organization_id, hour, model, user_id, identity_id, principal_id, deployment_id, api_key_id,
            distribution_id, invocations, prompt_tokens, completion_tokens, cached_tokens, cache_write_tokens,
            reasoning_tokens, cost
        )
        SELECT organization_id, date_trunc('hour', occurred_at, 'UTC'), model, user_id, identity_id, principal_id,
            deployment_id, api_key_id, distribution_id, count(*), sum(prompt_tokens), sum(completion_tokens),
            sum(cached_tokens), sum(cache_write_tokens), sum(reasoning_tokens), sum(cost)
        FROM usage_records
        WHERE occurred_at >= date_trunc('hour', p_from, 'UTC') AND occurred_at < p_to
            AND (p_organization_id IS NULL OR organization_id = p_organization_id)
        GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9
        ON CONFLICT ON CONSTRAINT uq_usage_hours_group DO UPDATE SET
            invocations = excluded.invocations, prompt_tokens = excluded.prompt_tokens,
            completion_tokens = excluded.completion_tokens, cached_tokens = excluded.cached_tokens,
            cache_write_tokens = excluded.cache_write_tokens, reasoning_tokens = excluded.reasoning_tokens,
            cost = excluded.cost
        WHERE (h.invocations, h.prompt_tokens, h.completion_tokens, h.cached_tokens, h.cache_write_tokens,
                h.reasoning_tokens, h.cost)
            IS DISTINCT FROM (excluded.invocations, excluded.prompt_tokens, excluded.completion_tokens,
                excluded.cached_tokens, excluded.cache_write_tokens, excluded.reasoning_tokens, excluded.cost)
        RETURNING hour
    )
    SELECT count(*), min(hour) INTO written, changed_from FROM changed;
    -- The mark is still the previous run's, so the days from it on have no sums yet.
    SELECT date_trunc('day', least(rolled_up_to, changed_from), 'UTC'),
        date_trunc('day', greatest(rolled_up_to, p_to), 'UTC')
    INTO days_from, days_to FROM usage_rollup;
    IF p_organization_id IS NOT NULL THEN
        days_from := date_trunc('day', p_from, 'UTC');
        days_to := least(days_to, days_from + interval '1 day');
    END IF;
    IF days_from < days_to THEN
        PERFORM credits_roll_up_days(days_from, days_to, p_organization_id);
    END IF;
    RETURN written;
END $$;
