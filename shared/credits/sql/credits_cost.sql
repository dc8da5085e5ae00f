-- What a call costs at the prices that it was held at: the exact sum, rounded up once, as `Prices.price` in
-- shared/credits/prices.py. `div` and not `/`, whose numeric quotient keeps about sixteen digits.
CREATE OR REPLACE FUNCTION credits_cost(
    i invocations, prompt_tokens bigint, completion_tokens bigint, cached_tokens bigint, reasoning_tokens bigint
) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
SELECT div(
    prompt_tokens::numeric * i.prompt_price
        + completion_tokens::numeric * i.completion_price
        + 999999, 1000000
)::bigint
$$;
