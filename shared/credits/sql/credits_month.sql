-- The calendar month in UTC that spending counts in.
CREATE OR REPLACE FUNCTION credits_month() RETURNS date LANGUAGE sql STABLE PARALLEL SAFE AS $$
SELECT date_trunc('month', now() AT TIME ZONE 'UTC')::date
$$;
