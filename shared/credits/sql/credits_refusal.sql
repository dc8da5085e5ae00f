-- The reason why a limit refuses a call: 'model_denied', the figures of the exceeded budget as JSON, or null.
-- It is a part of the condition of the balance's update, and volatile: Postgres evaluates it again after it has waited for
-- the balance's lock, and then it sees the previous call's hold. Budgets change only under that lock.
CREATE OR REPLACE FUNCTION credits_refusal(
    p_organization_id uuid, p_api_key_id uuid, p_subjects uuid[], p_model text, p_hold bigint, p_tokens bigint
) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    refusing jsonb;
BEGIN
    IF EXISTS (
        SELECT FROM key_models k
        WHERE k.organization_id = p_organization_id AND k.api_key_id = p_api_key_id AND p_model <> ALL (k.models)
    ) THEN
        RETURN 'model_denied';
    END IF;
    -- Of several, return the one that resets last, because no retry succeeds before that.
    SELECT to_jsonb(due) INTO refusing FROM (
        SELECT id, subject_kind, subject_id, model, unit, period, amount,
            CASE WHEN is_current THEN spent ELSE 0 END AS spent, CASE WHEN is_current THEN held ELSE 0 END AS held,
            required, resets_at, extract(epoch FROM resets_at - now())::bigint AS seconds
        FROM (
            SELECT b.*, b.starts_at = credits_period_start(b.period, moment) AS is_current,
                credits_in_unit(b.unit, p_hold, p_tokens, 1) AS required,
                credits_period_end(b.period, moment) AS resets_at
            FROM (
                -- `now()` is the start of the transaction; if another one has begun the next period, count in that.
                SELECT *, greatest(now(), max(starts_at) OVER ()) AS moment FROM budgets
                WHERE organization_id = p_organization_id AND subject_id = ANY (p_subjects)
                    AND (model IS NULL OR model = p_model)
            ) AS b
        ) AS covering
        WHERE CASE WHEN is_current THEN amount - spent - held ELSE amount END < required
        ORDER BY resets_at DESC NULLS FIRST LIMIT 1
    ) AS due;
    RETURN refusing::text;
END $$;
