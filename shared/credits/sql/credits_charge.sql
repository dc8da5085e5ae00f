-- Charge an invocation that this transaction has settled. Counts that are null are replaced by the estimate of the prompt
-- and by the streamed tokens.
CREATE OR REPLACE FUNCTION credits_charge(
    i invocations, p_status text, p_provider text, p_prompt_tokens bigint, p_completion_tokens bigint,
    p_cached_tokens bigint, p_reasoning_tokens bigint, p_is_estimated boolean, p_cache_write_tokens bigint DEFAULT 0,
    OUT charged bigint, OUT balance bigint
) LANGUAGE plpgsql AS $$
DECLARE
    prompt bigint := coalesce(p_prompt_tokens, i.estimated_prompt_tokens);
    completion bigint := coalesce(p_completion_tokens, i.streamed_tokens);
BEGIN
    charged := credits_cost(i, prompt, completion, p_cached_tokens, p_cache_write_tokens, p_reasoning_tokens);
    INSERT INTO usage_records (
        invocation_id, organization_id, model, provider, prompt_tokens, completion_tokens, cached_tokens,
        cache_write_tokens, reasoning_tokens, cost, status, is_estimated, user_id, identity_id, principal_id,
        deployment_id, api_key_id, distribution_id, occurred_at,
        budget_ids, budgeted_at
    ) VALUES (
        i.id, i.organization_id, i.model, p_provider, prompt, completion, p_cached_tokens,
        p_cache_write_tokens, p_reasoning_tokens, charged, p_status, p_is_estimated OR p_prompt_tokens IS NULL,
        i.user_id, i.identity_id, i.principal_id, i.deployment_id, i.api_key_id, i.distribution_id, now(),
        i.budget_ids, i.budgeted_at
    );
    balance := credits_post(i.organization_id, 'charge', i.id::text, -charged, i.hold, 1);
    IF i.budget_ids IS NOT NULL THEN
        PERFORM credits_count(i, 1, charged, prompt + completion, 1);
    END IF;
END $$;
