-- Reserve credits for a call. `result` is 'held', 'insufficient', 'suspended', 'conflict' (the id is another request's),
-- 'at_share' (the organization has `p_share` open calls; `held` is their number), 'model_denied', or the figures of the
-- budget that refuses, as JSON (`credits_refusal`).
-- The conditional update of the balance is the only decision; a repetition of the same hold changes nothing.
-- Its commit does not wait for the disk. If a crash undoes it, the call was not begun: the dispatch before the call does
-- wait, also for everything committed before it.
CREATE OR REPLACE FUNCTION credits_hold(
    p_id uuid, p_organization_id uuid, p_hold bigint, p_lease interval, p_model text,
    p_prompt_price bigint, p_completion_price bigint, p_estimated_prompt_tokens bigint, p_request_hash bytea,
    p_user_id uuid, p_identity_id uuid, p_principal_id uuid, p_deployment_id uuid, p_share integer DEFAULT NULL,
    p_provider text DEFAULT NULL, p_api_key_id uuid DEFAULT NULL, p_distribution_id uuid DEFAULT NULL,
    p_cached_prompt_price bigint DEFAULT NULL, p_cache_write_price bigint DEFAULT NULL,
    p_reasoning_price bigint DEFAULT NULL, p_request_price bigint DEFAULT 0, p_held_tokens bigint DEFAULT NULL,
    OUT result text, OUT available bigint, OUT held bigint
) LANGUAGE plpgsql AS $$
DECLARE
    balance credit_balances;
    earlier invocations;
    is_affordable boolean;
    is_limited boolean;
    subjects uuid[] := ARRAY[p_api_key_id, p_user_id, p_identity_id, p_principal_id, p_deployment_id];
    refusal text;
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    UPDATE credit_balances b SET held = b.held + p_hold, calls = b.calls + 1
    WHERE b.organization_id = p_organization_id AND b.policy <> 'suspended' AND credits_available(b) >= p_hold
        AND (p_share IS NULL OR b.calls < p_share)
        AND (b.limits = 0 OR credits_refusal(
            p_organization_id, p_api_key_id, subjects, p_model, p_hold, coalesce(p_held_tokens, 0)
        ) IS NULL)
    RETURNING b.limits > 0 INTO is_limited;
    is_affordable := FOUND;
    IF is_affordable THEN
        INSERT INTO invocations (
            id, organization_id, hold, model, prompt_price, completion_price, cached_prompt_price,
            cache_write_price, reasoning_price, request_price, estimated_prompt_tokens,
            request_hash, user_id, identity_id, principal_id, deployment_id, api_key_id, distribution_id,
            provider, lease_until
        ) VALUES (
            p_id, p_organization_id, p_hold, p_model, p_prompt_price, p_completion_price, p_cached_prompt_price,
            p_cache_write_price, p_reasoning_price, p_request_price, p_estimated_prompt_tokens,
            p_request_hash, p_user_id, p_identity_id, p_principal_id, p_deployment_id, p_api_key_id, p_distribution_id,
            p_provider, now() + p_lease
        ) ON CONFLICT (id) DO NOTHING;
        IF FOUND THEN
            result := 'held';
            IF is_limited THEN
                PERFORM credits_reserve(p_id, p_organization_id, subjects, p_model, p_hold, coalesce(p_held_tokens, 0));
            END IF;
            RETURN;
        END IF;
        -- The id already exists: undo the reservation, and compare with the earlier request below.
        UPDATE credit_balances b SET held = b.held - p_hold, calls = b.calls - 1
        WHERE b.organization_id = p_organization_id;
    END IF;
    SELECT * INTO earlier FROM invocations i WHERE i.id = p_id;
    IF FOUND THEN
        result := CASE
            WHEN (earlier.organization_id, earlier.hold, earlier.model, earlier.request_hash)
                IS NOT DISTINCT FROM (p_organization_id, p_hold, p_model, p_request_hash) THEN 'held'
            ELSE 'conflict'
        END;
        RETURN;
    END IF;
    SELECT * INTO balance FROM credit_balances b WHERE b.organization_id = p_organization_id;
    available := coalesce(credits_available(balance), 0);
    held := coalesce(balance.held, 0);
    result := CASE WHEN balance.policy = 'suspended' THEN 'suspended' ELSE 'insufficient' END;
    IF result = 'insufficient' AND p_share IS NOT NULL AND balance.calls IS NOT NULL AND available >= p_hold THEN
        result := 'at_share';
        held := balance.calls;
    END IF;
    -- The previous release passes no tokens and knows no limits; it gets 'insufficient' for their refusals.
    IF balance.limits > 0 AND result <> 'suspended' AND available >= p_hold AND p_held_tokens IS NOT NULL THEN
        refusal := credits_refusal(p_organization_id, p_api_key_id, subjects, p_model, p_hold, p_held_tokens);
        result := coalesce(refusal, result);
    END IF;
END $$;
