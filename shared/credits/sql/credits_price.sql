-- Used only by the reconciliation of the previous release; `credits_cost` replaced it. The next release drops it.
CREATE OR REPLACE FUNCTION credits_price(
    prompt_tokens bigint, completion_tokens bigint, prompt_price bigint, completion_price bigint
) RETURNS bigint LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
SELECT div(
    prompt_tokens::numeric * prompt_price + completion_tokens::numeric * completion_price + 999999, 1000000
)::bigint
$$;
