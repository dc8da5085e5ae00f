-- End a dispatched invocation and charge it. `result` is 'settled', 'corrected' (exact counts replace an estimate, once),
-- 'repeated' (nothing changes), or 'refused' (another dispatch's token, or the usage record was pruned).
-- A correction recomputes its hour from the records, so it locks the mark of pruning and changes nothing before it.
CREATE OR REPLACE FUNCTION credits_settle(
    p_id uuid, p_token uuid, p_status text, p_provider text, p_prompt_tokens bigint, p_completion_tokens bigint,
    p_cached_tokens bigint, p_reasoning_tokens bigint, p_is_estimated boolean, p_cache_write_tokens bigint DEFAULT 0,
    OUT result text, OUT cost bigint, OUT is_estimated boolean, OUT balance bigint
) LANGUAGE plpgsql AS $$
DECLARE
    i invocations;
    u usage_records;
    is_correction boolean;
BEGIN
    PERFORM credits_be_durable();
    UPDATE invocations SET state = 'settled', ended_at = now()
    WHERE id = p_id AND dispatch_token = p_token AND state <> 'settled' RETURNING * INTO i;
    IF FOUND THEN
        result := 'settled';
        is_estimated := p_is_estimated OR p_prompt_tokens IS NULL;
        SELECT c.charged, c.balance INTO cost, balance FROM credits_charge(i, p_status, p_provider, p_prompt_tokens,
            p_completion_tokens, p_cached_tokens, p_reasoning_tokens, p_is_estimated, p_cache_write_tokens) AS c;
        RETURN;
    END IF;
    SELECT * INTO i FROM invocations WHERE id = p_id AND dispatch_token = p_token FOR UPDATE;
    IF NOT FOUND THEN
        result := 'refused';
        RETURN;
    END IF;
    SELECT * INTO u FROM usage_records WHERE invocation_id = p_id;
    is_correction := u.is_estimated AND u.corrected_at IS NULL AND p_prompt_tokens IS NOT NULL AND NOT p_is_estimated;
    IF is_correction THEN
        PERFORM FROM usage_rollup WHERE pruned_to <= u.occurred_at FOR UPDATE;
        is_correction := FOUND;
    END IF;
    IF is_correction THEN
        result := 'corrected';
        balance := credits_correct(i, u, p_status, p_provider, p_prompt_tokens, p_completion_tokens,
            p_cached_tokens, p_reasoning_tokens, p_cache_write_tokens);
    ELSE
        result := 'repeated';
        SELECT b.posted INTO balance FROM credit_balances b WHERE b.organization_id = i.organization_id;
    END IF;
    SELECT r.cost, r.is_estimated INTO cost, is_estimated FROM usage_records r WHERE r.invocation_id = p_id;
    IF NOT FOUND THEN
        result := 'refused';
    END IF;
END $$;
