-- What a new call may hold: the balance and overdraft, or the rest of the month's spending limit, less what is held.
-- For a suspended organization it is the debt, or 0.
CREATE OR REPLACE FUNCTION credits_available(b credit_balances) RETURNS bigint LANGUAGE sql STABLE PARALLEL SAFE AS $$
SELECT CASE
    WHEN b.policy = 'active' THEN b.posted + b.overdraft - b.held
    WHEN b.policy = 'limit' THEN least(
        b.posted + b.overdraft,
        b.spending_limit - CASE WHEN b.spent_month = credits_month() THEN b.spent ELSE 0 END
    ) - b.held
    ELSE least(0, b.posted + b.overdraft - b.held)
END
$$;
