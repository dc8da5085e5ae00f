-- An organization's balance before a moment: the balance an hour earlier plus the later entries from before the moment.
-- The times of versions can be out of order by less than an hour, because no transaction that writes an entry lasts longer.
CREATE OR REPLACE FUNCTION credits_balance_before(p_organization_id uuid, p_moment timestamptz) RETURNS bigint
LANGUAGE sql STABLE PARALLEL SAFE AS $$
WITH around AS (
    SELECT credits_first_since(p_organization_id, p_moment - interval '1 hour') AS first,
        credits_first_since(p_organization_id, p_moment + interval '1 hour') AS beyond
)
SELECT coalesce((
    SELECT e.balance_after FROM ledger_entries e, around
    WHERE e.organization_id = p_organization_id AND e.version = around.first - 1
), 0) + coalesce((
    SELECT sum(e.amount)::bigint FROM ledger_entries e, around
    WHERE e.organization_id = p_organization_id AND e.version >= around.first AND e.version < around.beyond
        AND e.occurred_at < p_moment
), 0)
$$;
