-- Count a new hold in each budget that covers it, and store these budgets in the invocation.
-- A budget whose period is over starts the current one. The balance is locked, and so are all budgets.
CREATE OR REPLACE FUNCTION credits_reserve(
    p_id uuid, p_organization_id uuid, p_subjects uuid[], p_model text, p_hold bigint, p_tokens bigint
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    covering uuid[];
    moment timestamptz;
BEGIN
    SELECT array_agg(b.id), greatest(now(), max(b.starts_at)) INTO covering, moment FROM budgets b
    WHERE b.organization_id = p_organization_id AND b.subject_id = ANY (p_subjects)
        AND (b.model IS NULL OR b.model = p_model);
    IF covering IS NULL THEN
        RETURN;
    END IF;
    UPDATE budgets b SET
        starts_at = present.starts_at,
        held = CASE WHEN b.starts_at = present.starts_at THEN b.held ELSE 0 END
            + credits_in_unit(b.unit, p_hold, p_tokens, 1),
        spent = CASE WHEN b.starts_at = present.starts_at THEN b.spent ELSE 0 END,
        alerted_share = CASE WHEN b.starts_at = present.starts_at THEN b.alerted_share ELSE 0 END
    FROM (
        SELECT id, credits_period_start(period, moment) AS starts_at FROM budgets WHERE id = ANY (covering)
    ) AS present WHERE b.id = present.id;
    UPDATE invocations SET budget_ids = covering, budgeted_at = moment, held_tokens = p_tokens WHERE id = p_id;
END $$;
