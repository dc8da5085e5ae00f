-- The amount of a call that a budget of this unit counts.
CREATE OR REPLACE FUNCTION credits_in_unit(unit text, credits bigint, tokens bigint, requests bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
SELECT CASE unit WHEN 'credits' THEN credits WHEN 'tokens' THEN tokens ELSE requests END
$$;
