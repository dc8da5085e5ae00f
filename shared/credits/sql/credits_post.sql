-- Change a balance, write the ledger entry and release a hold; the only function that does. Returns the new balance.
-- `p_calls` is the number of calls that end with it. Storage counts as spending. A balance that is no longer below minus
-- the overdraft ends the debt for storage.
CREATE OR REPLACE FUNCTION credits_post(
    p_organization_id uuid, p_kind text, p_reference text, p_amount bigint, p_release bigint,
    p_calls integer DEFAULT 0
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    spending bigint := CASE WHEN p_kind IN ('charge', 'correction', 'storage') THEN -p_amount ELSE 0 END;
    month date := credits_month();
    after credit_balances;
BEGIN
    -- `now()` is the start of the transaction. If it lies in the past month and another transaction has begun the new one,
    -- the amount is not added to the new month.
    UPDATE credit_balances b SET
        posted = b.posted + p_amount,
        held = b.held - p_release,
        calls = greatest(b.calls - p_calls, 0),
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
