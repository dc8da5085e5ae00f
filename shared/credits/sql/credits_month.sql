-- The current calendar month in UTC, for the monthly spending.
CREATE OR REPLACE FUNCTION credits_month() RETURNS date LANGUAGE sql STABLE PARALLEL SAFE AS $$
SELECT date_trunc('month', now() AT TIME ZONE 'UTC')::date
$$;
