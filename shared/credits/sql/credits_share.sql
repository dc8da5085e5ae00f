-- The highest share of a budget that has been spent, of those that are alerted: 100, 80 or 50 per cent, or 0.
CREATE OR REPLACE FUNCTION credits_share(unit text, spent bigint, amount bigint) RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
SELECT CASE
    WHEN unit <> 'credits' OR amount = 0 THEN 0
    WHEN spent >= amount THEN 100
    WHEN spent >= amount * 0.8 THEN 80
    WHEN spent >= amount * 0.5 THEN 50
    ELSE 0
END
$$;
