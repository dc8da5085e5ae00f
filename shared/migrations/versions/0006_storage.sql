-- Charging for storage: measured days become entries, and what an organization owes for them has a grace.
-- Lock order: the balance, then the organization's days.

-- Byte-microseconds that the price is for: a GiB for 30 days (shared/credits/amounts.py: STORAGE_UNIT).
CREATE FUNCTION credits_storage_unit() RETURNS numeric LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN 2783138807808000000000::numeric;

-- Move an amount to or from a balance, write its entry, give back a hold: the only writer of both. As in 0003, but
-- storage is spending too, and whoever has credits again owes nothing for storage.
CREATE OR REPLACE FUNCTION credits_post(
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

-- Whether an organization's storage is unpaid and its grace over. Part of every upload: plpgsql keeps the plan.
CREATE FUNCTION credits_storage_is_refused(p_organization_id uuid) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM credit_balances b
        WHERE b.organization_id = p_organization_id AND b.storage_refused_from <= clock_timestamp()
    );
END $$;

-- Charge an organization's measured days, oldest first, each once: exact to the µcr, rounded down, the remainder
-- carried to the next day. The balance's lock makes two that charge it follow one another. Returns how many days.
CREATE FUNCTION credits_charge_storage(p_organization_id uuid, p_grace interval, p_limit integer) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    posted bigint;
    carried numeric;
    exact numeric;
    charge bigint;
    is_owing boolean := false;
    charged bigint := 0;
    d storage_days;
BEGIN
    PERFORM credits_be_durable();
    INSERT INTO credit_balances (organization_id)
    SELECT id FROM organizations WHERE id = p_organization_id ON CONFLICT DO NOTHING;
    SELECT b.posted INTO posted FROM credit_balances b WHERE b.organization_id = p_organization_id FOR UPDATE;
    IF NOT FOUND THEN
        RETURN 0;
    END IF;
    SELECT s.remainder INTO carried FROM storage_days s
    WHERE s.organization_id = p_organization_id AND s.charged_at IS NOT NULL ORDER BY s.day DESC LIMIT 1;
    carried := coalesce(carried, 0);
    FOR d IN
        SELECT * FROM storage_days s
        WHERE s.organization_id = p_organization_id AND s.charged_at IS NULL AND s.price IS NOT NULL
        ORDER BY s.day LIMIT p_limit
    LOOP
        exact := greatest(d.byte_microseconds, 0) * d.price + carried;
        charge := div(exact, credits_storage_unit());
        -- A balance that cannot be kept exactly is not kept at all; the day stays uncharged, and the proof says so.
        EXIT WHEN posted - charge < -4000000000000000000;
        carried := exact - charge * credits_storage_unit();
        posted := credits_post(p_organization_id, 'storage', d.day::text, -charge, 0);
        UPDATE storage_days s SET cost = charge, remainder = carried, charged_at = now()
        WHERE s.organization_id = p_organization_id AND s.day = d.day;
        is_owing := is_owing OR charge > 0;
        charged := charged + 1;
    END LOOP;
    IF is_owing THEN
        -- The end of the grace that was once given is never brought forward.
        UPDATE credit_balances b SET
            storage_overdue_since = coalesce(b.storage_overdue_since, now()),
            storage_refused_from = greatest(
                b.storage_refused_from, coalesce(b.storage_overdue_since, now()) + p_grace
            )
        WHERE b.organization_id = p_organization_id AND b.posted + b.overdraft < 0;
    END IF;
    RETURN charged;
END $$;
