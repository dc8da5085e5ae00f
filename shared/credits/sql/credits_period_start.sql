-- The start, in UTC, of the budget period that contains a moment; the one period of `once` starts at the epoch.
CREATE OR REPLACE FUNCTION credits_period_start(period text, at timestamptz) RETURNS timestamptz
LANGUAGE sql STABLE PARALLEL SAFE AS $$
SELECT CASE WHEN period = 'once' THEN 'epoch'::timestamptz ELSE date_trunc(period, at, 'UTC') END
$$;
