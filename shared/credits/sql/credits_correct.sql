-- Replace an estimate by exact counts, with one correction entry. The caller has locked the mark of the rollups and
-- ensures that this happens once.
CREATE OR REPLACE FUNCTION credits_correct(
    i invocations, u usage_records, p_status text, p_provider text, p_prompt_tokens bigint,
    p_completion_tokens bigint, p_cached_tokens bigint, p_reasoning_tokens bigint,
    p_cache_write_tokens bigint DEFAULT 0
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    exact bigint := credits_cost(
        i, p_prompt_tokens, p_completion_tokens, p_cached_tokens, p_cache_write_tokens, p_reasoning_tokens
    );
    mark timestamptz;
    posted bigint;
BEGIN
    UPDATE usage_records SET
        prompt_tokens = p_prompt_tokens, completion_tokens = p_completion_tokens, cached_tokens = p_cached_tokens,
        cache_write_tokens = p_cache_write_tokens, reasoning_tokens = p_reasoning_tokens, cost = exact, status = p_status,
        provider = coalesce(p_provider, u.provider), is_estimated = false, corrected_at = now()
    WHERE invocation_id = i.id;
    posted := credits_post(i.organization_id, 'correction', i.id::text, u.cost - exact, 0);
    IF i.budget_ids IS NOT NULL THEN
        PERFORM credits_count(
            i, 0, exact - u.cost, p_prompt_tokens + p_completion_tokens - u.prompt_tokens - u.completion_tokens, 0
        );
    END IF;
    SELECT rolled_up_to INTO mark FROM usage_rollup;
    PERFORM credits_roll_up(
        u.occurred_at, least(mark, date_trunc('hour', u.occurred_at, 'UTC') + interval '1 hour'), i.organization_id
    );
    RETURN posted;
END $$;
