-- Write a top-up or an adjustment once per organization, kind and reference; a repetition returns the first entry.
CREATE OR REPLACE FUNCTION credits_enter(
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
