-- The byte-microseconds that a price is for: a GiB for 30 days.
CREATE OR REPLACE FUNCTION credits_storage_unit() RETURNS numeric LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
SELECT 2783138807808000000000::numeric
$$;
