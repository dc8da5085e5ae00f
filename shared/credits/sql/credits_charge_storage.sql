-- Charge an organization's measured days, oldest first, each once. Returns the number of days.
-- The cost is rounded down to the µcr and the remainder carried to the next day, converted if that day's price is for
-- another number of days. The lock on the balance serializes concurrent charges of one organization.
CREATE OR REPLACE FUNCTION credits_charge_storage(p_organization_id uuid, p_grace interval, p_limit integer) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    posted bigint;
    carried numeric;
    carried_days smallint;
    unit numeric;
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
    SELECT s.remainder, s.price_days INTO carried, carried_days FROM storage_days s
    WHERE s.organization_id = p_organization_id AND s.charged_at IS NOT NULL ORDER BY s.day DESC LIMIT 1;
    carried := coalesce(carried, 0);
    FOR d IN
        SELECT * FROM storage_days s
        WHERE s.organization_id = p_organization_id AND s.charged_at IS NULL AND s.price IS NOT NULL
        ORDER BY s.day LIMIT p_limit
    LOOP
        unit := div(credits_storage_unit() * d.price_days, 30);
        exact := greatest(d.byte_microseconds, 0) * d.price
            + div(carried * d.price_days, coalesce(carried_days, d.price_days));
        charge := div(exact, unit);
        -- Leave the day uncharged if the balance would exceed its exact range; the reconciliation reports the difference.
        EXIT WHEN posted - charge < -4000000000000000000;
        carried := exact - charge * unit;
        carried_days := d.price_days;
        posted := credits_post(p_organization_id, 'storage', d.day::text, -charge, 0);
        UPDATE storage_days s SET cost = charge, remainder = carried, charged_at = now()
        WHERE s.organization_id = p_organization_id AND s.day = d.day;
        is_owing := is_owing OR charge > 0;
        charged := charged + 1;
    END LOOP;
    IF is_owing THEN
        -- A grace period that was granted is never shortened.
        UPDATE credit_balances b SET
            storage_overdue_since = coalesce(b.storage_overdue_since, now()),
            storage_refused_from = greatest(
                b.storage_refused_from, coalesce(b.storage_overdue_since, now()) + p_grace
            )
        WHERE b.organization_id = p_organization_id AND b.posted + b.overdraft < 0;
    END IF;
    RETURN charged;
END $$;
