-- The version of an organization's first entry since a moment, by binary search: versions have no gap, and their times
-- ascend except for those of concurrent transactions.
CREATE OR REPLACE FUNCTION credits_first_since(p_organization_id uuid, p_moment timestamptz) RETURNS bigint
LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
DECLARE
    low bigint := 1;
    high bigint;
    middle bigint;
    met timestamptz;
BEGIN
    SELECT coalesce(max(e.version), 0) + 1 INTO high FROM ledger_entries e WHERE e.organization_id = p_organization_id;
    WHILE low < high LOOP
        middle := (low + high) / 2;
        SELECT e.occurred_at INTO met FROM ledger_entries e
        WHERE e.organization_id = p_organization_id AND e.version = middle;
        IF met >= p_moment THEN
            high := middle;
        ELSE
            low := middle + 1;
        END IF;
    END LOOP;
    RETURN low;
END $$;
