-- What a call may still hold, whatever the policy says of being allowed to.
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
