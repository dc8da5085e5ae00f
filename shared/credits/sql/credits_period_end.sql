-- The end, in UTC, of the budget period that contains a moment; null for `once`.
CREATE OR REPLACE FUNCTION credits_period_end(period text, at timestamptz) RETURNS timestamptz
LANGUAGE sql STABLE PARALLEL SAFE AS $$
SELECT CASE WHEN period <> 'once' THEN
    (date_trunc(period, at AT TIME ZONE 'UTC') + ('1 ' || period)::interval) AT TIME ZONE 'UTC'
END
$$;
