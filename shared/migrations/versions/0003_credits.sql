-- The functions of credits: every movement of money is one of these, in one round trip and one transaction.
-- Lock order everywhere: invocation, then balance, then the mark of the rollups. Sweeps never wait for an invocation.

-- What rounding there is: the exact sum for two kinds of tokens, rounded up once (shared/credits/amounts.py: price).
-- `div` and not `/`, whose numeric quotient keeps about sixteen digits.
CREATE FUNCTION credits_price(
    prompt_tokens bigint, completion_tokens bigint, prompt_price bigint, completion_price bigint
) RETURNS bigint LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN div(
    prompt_tokens::numeric * prompt_price + completion_tokens::numeric * completion_price + 999999, 1000000
)::bigint;

CREATE FUNCTION credits_month() RETURNS date LANGUAGE sql STABLE PARALLEL SAFE
RETURN date_trunc('month', now() AT TIME ZONE 'UTC')::date;

-- What a call may still hold, whatever the policy says of being allowed to.
CREATE FUNCTION credits_available(b credit_balances) RETURNS bigint LANGUAGE sql STABLE PARALLEL SAFE
RETURN CASE
    WHEN b.policy = 'active' THEN b.posted + b.overdraft - b.held
    WHEN b.policy = 'limit' THEN least(
        b.posted + b.overdraft,
        b.spending_limit - CASE WHEN b.spent_month = credits_month() THEN b.spent ELSE 0 END
    ) - b.held
    ELSE least(0, b.posted + b.overdraft - b.held)
END;

-- A settlement that a power failure takes back is a call without a trace, so asynchronous commit is overruled.
CREATE FUNCTION credits_be_durable() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
END $$;

-- Move an amount to or from a balance, write its entry, give back a hold: the only writer of both.
CREATE FUNCTION credits_post(
    p_organization_id uuid, p_kind text, p_reference text, p_amount bigint, p_release bigint
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    spending bigint := CASE WHEN p_kind IN ('charge', 'correction') THEN -p_amount ELSE 0 END;
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
        spent_month = greatest(b.spent_month, month)
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

-- Reserve credits for a call: 'held', or 'insufficient', 'suspended', 'conflict' (the id stands for another request).
-- The conditional update of the balance is the only decision; a repetition of the same hold changes nothing.
-- Its commit does not wait for the disk: a hold that a crash takes back is one whose call was not begun, because
-- the dispatch before the call does wait, and for all that was committed before it.
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

-- Take the one right to call the provider: the row, or nothing when someone else has it or the invocation has ended.
-- The same token again is the same execution asking again, because it did not hear the answer.
CREATE FUNCTION credits_dispatch(p_id uuid, p_token uuid, p_lease interval) RETURNS SETOF invocations
LANGUAGE plpgsql ROWS 1 AS $$
BEGIN
    PERFORM credits_be_durable();
    RETURN QUERY UPDATE invocations i
    SET state = 'dispatched', dispatch_token = p_token, lease_until = now() + p_lease
    WHERE i.id = p_id AND (
        (i.state = 'held' AND i.lease_until > now()) OR (i.state = 'dispatched' AND i.dispatch_token = p_token)
    ) RETURNING i.*;
END $$;

-- Remember how much was streamed and renew the lease, for the execution that has this token.
CREATE FUNCTION credits_note_streamed(p_id uuid, p_token uuid, p_streamed_tokens bigint, p_lease interval)
RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    UPDATE invocations i
    SET streamed_tokens = greatest(i.streamed_tokens, p_streamed_tokens), lease_until = now() + p_lease
    WHERE i.id = p_id AND i.dispatch_token = p_token AND i.state IN ('dispatched', 'unresolved');
    RETURN FOUND;
END $$;

-- Give back the hold of an invocation that was never dispatched.
CREATE FUNCTION credits_void(p_id uuid) RETURNS boolean LANGUAGE plpgsql AS $$
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

-- Charge an invocation that this transaction has settled; counts that are null are estimated from what is known of it.
CREATE FUNCTION credits_charge(
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

-- Recompute the rollups of the hours that records in [p_from, p_to) fall into, of one organization or of all.
-- Only under the lock of the mark: two recomputations of an hour could otherwise end with the older one's sums.
CREATE FUNCTION credits_roll_up(p_from timestamptz, p_to timestamptz, p_organization_id uuid) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    written bigint;
BEGIN
    INSERT INTO usage_hours AS h (
        organization_id, hour, model, user_id, identity_id, principal_id, deployment_id,
        invocations, prompt_tokens, completion_tokens, cached_tokens, reasoning_tokens, cost
    )
    SELECT organization_id, date_trunc('hour', occurred_at, 'UTC'), model, user_id, identity_id, principal_id,
        deployment_id, count(*), sum(prompt_tokens), sum(completion_tokens), sum(cached_tokens),
        sum(reasoning_tokens), sum(cost)
    FROM usage_records
    WHERE occurred_at >= date_trunc('hour', p_from, 'UTC') AND occurred_at < p_to
        AND (p_organization_id IS NULL OR organization_id = p_organization_id)
    GROUP BY 1, 2, 3, 4, 5, 6, 7
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

-- Replace an estimate by what the provider says after all: one correction entry, once.
CREATE FUNCTION credits_correct(
    i invocations, u usage_records, p_status text, p_provider text, p_prompt_tokens bigint,
    p_completion_tokens bigint, p_cached_tokens bigint, p_reasoning_tokens bigint
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    exact bigint := credits_price(p_prompt_tokens, p_completion_tokens, i.prompt_price, i.completion_price);
    mark timestamptz;
    posted bigint;
BEGIN
    UPDATE usage_records SET
        prompt_tokens = p_prompt_tokens, completion_tokens = p_completion_tokens, cached_tokens = p_cached_tokens,
        reasoning_tokens = p_reasoning_tokens, cost = exact, status = p_status,
        provider = coalesce(p_provider, u.provider), is_estimated = false, corrected_at = now()
    WHERE invocation_id = i.id;
    posted := credits_post(i.organization_id, 'correction', i.id::text, u.cost - exact, 0);
    SELECT rolled_up_to INTO mark FROM usage_rollup FOR UPDATE;
    PERFORM credits_roll_up(
        u.occurred_at, least(mark, date_trunc('hour', u.occurred_at, 'UTC') + interval '1 hour'), i.organization_id
    );
    RETURN posted;
END $$;

-- End a dispatched invocation, whatever became of it: 'settled', 'corrected' (an estimate, by exact counts, once),
-- 'repeated' (nothing changes), or 'refused' (the token is not its execution's).
CREATE FUNCTION credits_settle(
    p_id uuid, p_token uuid, p_status text, p_provider text, p_prompt_tokens bigint, p_completion_tokens bigint,
    p_cached_tokens bigint, p_reasoning_tokens bigint, p_is_estimated boolean,
    OUT result text, OUT cost bigint, OUT is_estimated boolean, OUT balance bigint
) LANGUAGE plpgsql AS $$
DECLARE
    i invocations;
    u usage_records;
BEGIN
    PERFORM credits_be_durable();
    UPDATE invocations SET state = 'settled', ended_at = now()
    WHERE id = p_id AND dispatch_token = p_token AND state <> 'settled' RETURNING * INTO i;
    IF FOUND THEN
        result := 'settled';
        is_estimated := p_is_estimated OR p_prompt_tokens IS NULL;
        SELECT c.charged, c.balance INTO cost, balance FROM credits_charge(i, p_status, p_provider, p_prompt_tokens,
            p_completion_tokens, p_cached_tokens, p_reasoning_tokens, p_is_estimated) AS c;
        RETURN;
    END IF;
    SELECT * INTO i FROM invocations WHERE id = p_id AND dispatch_token = p_token FOR UPDATE;
    IF NOT FOUND THEN
        result := 'refused';
        RETURN;
    END IF;
    SELECT * INTO u FROM usage_records WHERE invocation_id = p_id;
    IF u.is_estimated AND u.corrected_at IS NULL AND p_prompt_tokens IS NOT NULL AND NOT p_is_estimated THEN
        result := 'corrected';
        balance := credits_correct(i, u, p_status, p_provider, p_prompt_tokens, p_completion_tokens,
            p_cached_tokens, p_reasoning_tokens);
    ELSE
        result := 'repeated';
        SELECT b.posted INTO balance FROM credit_balances b WHERE b.organization_id = i.organization_id;
    END IF;
    SELECT r.cost, r.is_estimated INTO cost, is_estimated FROM usage_records r WHERE r.invocation_id = p_id;
END $$;

-- Give back the holds of invocations that nobody dispatched in time.
CREATE FUNCTION credits_release_overdue(p_limit integer) RETURNS bigint LANGUAGE plpgsql AS $$
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

-- Mark dispatched invocations whose worker has let the lease end; their holds stay until it is known what they cost.
CREATE FUNCTION credits_mark_unresolved(p_limit integer) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    marked bigint;
BEGIN
    WITH due AS (
        SELECT id FROM invocations WHERE state = 'dispatched' AND lease_until <= now()
        ORDER BY lease_until LIMIT p_limit FOR UPDATE SKIP LOCKED
    )
    UPDATE invocations i SET state = 'unresolved' FROM due WHERE i.id = due.id;
    GET DIAGNOSTICS marked = ROW_COUNT;
    RETURN marked;
END $$;

-- Settle by estimate what is still unresolved so long after its lease.
CREATE FUNCTION credits_settle_unresolved(p_grace interval, p_limit integer) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    settled bigint := 0;
    i invocations;
BEGIN
    PERFORM credits_be_durable();
    FOR i IN
        WITH due AS MATERIALIZED (
            SELECT id FROM invocations WHERE state = 'unresolved' AND lease_until <= now() - p_grace
            ORDER BY lease_until LIMIT p_limit FOR UPDATE SKIP LOCKED
        ), ended AS (
            UPDATE invocations AS at SET state = 'settled', ended_at = now() FROM due WHERE at.id = due.id RETURNING at.*
        )
        SELECT * FROM ended ORDER BY organization_id
    LOOP
        -- Nobody will say what it consumed: what was noted as streamed was delivered, and else nothing is owed.
        PERFORM credits_charge(i, 'failed', NULL, CASE WHEN i.streamed_tokens > 0 THEN i.estimated_prompt_tokens ELSE 0 END,
            i.streamed_tokens, 0, 0, true);
        settled := settled + 1;
    END LOOP;
    RETURN settled;
END $$;

-- Credit or debit an organization from outside: the entry of this kind and reference is written once.
CREATE FUNCTION credits_enter(
    p_organization_id uuid, p_kind text, p_reference text, p_amount bigint,
    OUT entry ledger_entries, OUT is_replayed boolean, OUT is_beyond boolean
) LANGUAGE plpgsql AS $$
DECLARE
    before bigint;
BEGIN
    PERFORM credits_be_durable();
    INSERT INTO credit_balances (organization_id) VALUES (p_organization_id) ON CONFLICT DO NOTHING;
    SELECT posted INTO before FROM credit_balances WHERE organization_id = p_organization_id FOR UPDATE;
    is_replayed := EXISTS (
        SELECT FROM ledger_entries e
        WHERE e.organization_id = p_organization_id AND e.kind = p_kind AND e.reference = p_reference
    );
    is_beyond := NOT is_replayed AND abs(before + p_amount) > 4000000000000000000;
    IF is_beyond THEN
        RETURN;
    END IF;
    IF NOT is_replayed THEN
        PERFORM credits_post(p_organization_id, p_kind, p_reference, p_amount, 0);
    END IF;
    SELECT * INTO entry FROM ledger_entries e
    WHERE e.organization_id = p_organization_id AND e.kind = p_kind AND e.reference = p_reference;
END $$;

CREATE FUNCTION refuse_ledger_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'ledger_entries is append-only';
END $$;
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON ledger_entries
    FOR EACH ROW EXECUTE FUNCTION refuse_ledger_change();
CREATE TRIGGER never_emptied BEFORE TRUNCATE ON ledger_entries
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_ledger_change();
