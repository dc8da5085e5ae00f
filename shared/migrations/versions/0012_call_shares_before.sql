-- The functions that migration 0012 replaces, as 0003 and 0006 made them; its downgrade puts them back.

CREATE FUNCTION credits_post(
    p_organization_id uuid, p_kind text, p_reference text, p_amount bigint, p_release bigint
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    spending bigint := CASE WHEN p_kind IN ('charge', 'correction', 'storage') THEN -p_amount ELSE 0 END;
    month date := credits_month();
    after credit_balances;
BEGIN
    -- A transaction that began last month and got the row only now belongs to a month that is over.
    UPDATE credit_balances b SET
        posted = b.posted + p_amount,
        held = b.held - p_release,
        version = b.version + CASE WHEN p_amount = 0 THEN 0 ELSE 1 END,
        spent = CASE WHEN b.spent_month = month THEN b.spent + spending
            WHEN b.spent_month < month THEN spending ELSE b.spent END,
        spent_month = greatest(b.spent_month, month),
        storage_overdue_since = CASE WHEN b.posted + p_amount + b.overdraft < 0 THEN b.storage_overdue_since END,
        storage_refused_from = CASE WHEN b.posted + p_amount + b.overdraft < 0 THEN b.storage_refused_from END
    WHERE b.organization_id = p_organization_id RETURNING * INTO after;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'organization % has no balance', p_organization_id;
    END IF;
    IF p_amount <> 0 THEN
        INSERT INTO ledger_entries (organization_id, version, kind, reference, amount, balance_after, occurred_at)
        VALUES (p_organization_id, after.version, p_kind, p_reference, p_amount, after.posted, now());
    END IF;
    RETURN after.posted;
END $$;

CREATE FUNCTION credits_hold(
    p_id uuid, p_organization_id uuid, p_hold bigint, p_lease interval, p_model text,
    p_prompt_price bigint, p_completion_price bigint, p_estimated_prompt_tokens bigint, p_request_hash bytea,
    p_user_id uuid, p_identity_id uuid, p_principal_id uuid, p_deployment_id uuid,
    OUT result text, OUT available bigint, OUT held bigint
) LANGUAGE plpgsql AS $$
DECLARE
    balance credit_balances;
    earlier invocations;
    is_affordable boolean;
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    UPDATE credit_balances b SET held = b.held + p_hold
    WHERE b.organization_id = p_organization_id AND b.policy <> 'suspended' AND credits_available(b) >= p_hold;
    is_affordable := FOUND;
    IF is_affordable THEN
        INSERT INTO invocations (
            id, organization_id, hold, model, prompt_price, completion_price, estimated_prompt_tokens,
            request_hash, user_id, identity_id, principal_id, deployment_id, lease_until
        ) VALUES (
            p_id, p_organization_id, p_hold, p_model, p_prompt_price, p_completion_price,
            p_estimated_prompt_tokens, p_request_hash, p_user_id, p_identity_id, p_principal_id, p_deployment_id,
            now() + p_lease
        ) ON CONFLICT (id) DO NOTHING;
        IF FOUND THEN
            result := 'held';
            RETURN;
        END IF;
        UPDATE credit_balances b SET held = b.held - p_hold WHERE b.organization_id = p_organization_id;
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
    result := CASE WHEN balance.policy = 'suspended' THEN 'suspended' ELSE 'insufficient' END;
    available := coalesce(credits_available(balance), 0);
    held := coalesce(balance.held, 0);
END $$;

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
    PERFORM credits_post(ended.organization_id, 'charge', p_id::text, 0, ended.hold);
    RETURN true;
END $$;

CREATE OR REPLACE FUNCTION credits_charge(
    i invocations, p_status text, p_provider text, p_prompt_tokens bigint, p_completion_tokens bigint,
    p_cached_tokens bigint, p_reasoning_tokens bigint, p_is_estimated boolean,
    OUT charged bigint, OUT balance bigint
) LANGUAGE plpgsql AS $$
DECLARE
    prompt bigint := coalesce(p_prompt_tokens, i.estimated_prompt_tokens);
    completion bigint := coalesce(p_completion_tokens, i.streamed_tokens);
BEGIN
    charged := credits_price(prompt, completion, i.prompt_price, i.completion_price);
    INSERT INTO usage_records (
        invocation_id, organization_id, model, provider, prompt_tokens, completion_tokens, cached_tokens,
        reasoning_tokens, cost, status, is_estimated, user_id, identity_id, principal_id, deployment_id, occurred_at
    ) VALUES (
        i.id, i.organization_id, i.model, p_provider, prompt, completion, p_cached_tokens, p_reasoning_tokens,
        charged, p_status, p_is_estimated OR p_prompt_tokens IS NULL, i.user_id, i.identity_id, i.principal_id,
        i.deployment_id, now()
    );
    balance := credits_post(i.organization_id, 'charge', i.id::text, -charged, i.hold);
END $$;

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
            RETURNING i.organization_id, i.hold
        )
        SELECT organization_id, count(*) AS invocations, sum(hold)::bigint AS hold
        FROM ended GROUP BY organization_id ORDER BY organization_id
    LOOP
        PERFORM credits_post(freed.organization_id, 'charge', '', 0, freed.hold);
        released := released + freed.invocations;
    END LOOP;
    RETURN released;
END $$;
