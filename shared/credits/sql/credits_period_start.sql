-- When the period of a budget began that a moment falls into, in UTC; `once` has one period for ever.
CREATE OR REPLACE FUNCTION credits_period_start(period text, at timestamptz) RETURNS timestamptz
LANGUAGE sql STABLE PARALLEL SAFE AS $$
SELECT CASE WHEN period = 'once' THEN 'epoch'::timestamptz ELSE date_trunc(period, at, 'UTC') END
$$;
