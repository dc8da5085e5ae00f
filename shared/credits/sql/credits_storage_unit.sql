-- Byte-microseconds that the price is for: a GiB for 30 days (shared/credits/amounts.py: STORAGE_UNIT).
CREATE OR REPLACE FUNCTION credits_storage_unit() RETURNS numeric LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
SELECT 2783138807808000000000::numeric
$$;
