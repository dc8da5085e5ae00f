-- What an organization had before a moment: the balance well before it, and the entries between that happened earlier.
-- No transaction that writes an entry lasts an hour, so that the moments of versions are in disorder by less.
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
