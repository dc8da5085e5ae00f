-- Count a settled, voided or corrected call in its budgets: release `p_holds` times its hold and add its consumption.
-- Budgets whose period is over are not changed. Write an alert for each budget that reaches a share.
CREATE OR REPLACE FUNCTION credits_count(
    i invocations, p_holds integer, p_cost bigint, p_tokens bigint, p_requests bigint
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    WITH counted AS (
        UPDATE budgets b SET
            held = b.held - p_holds * credits_in_unit(b.unit, i.hold, i.held_tokens, 1),
            spent = present.spent,
            alerted_share = greatest(b.alerted_share, credits_share(b.unit, present.spent, b.amount))
        FROM (
            SELECT id, alerted_share, spent + credits_in_unit(unit, p_cost, p_tokens, p_requests) AS spent
            FROM budgets WHERE id = ANY (i.budget_ids)
        ) AS present
        WHERE b.id = present.id AND b.starts_at = credits_period_start(b.period, i.budgeted_at)
        RETURNING b.*, present.alerted_share AS alerted_before
    )
    INSERT INTO budget_alerts (organization_id, budget_id, share, details)
    SELECT organization_id, id, alerted_share, jsonb_build_object(
        'subject_kind', subject_kind, 'subject_id', subject_id, 'model', model, 'period', period, 'amount', amount,
        'spent', spent, 'resets_at', credits_period_end(period, starts_at)
    ) FROM counted WHERE alerted_share > alerted_before;
END $$;
