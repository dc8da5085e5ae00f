-- What a call costs: the exact sum for two kinds of tokens, rounded up once, as `Prices.price` in shared/credits/prices.py.
-- `div` and not `/`, whose numeric quotient keeps about sixteen digits.
CREATE OR REPLACE FUNCTION credits_price(
    prompt_tokens bigint, completion_tokens bigint, prompt_price bigint, completion_price bigint
) RETURNS bigint LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
SELECT div(
    prompt_tokens::numeric * prompt_price + completion_tokens::numeric * completion_price + 999999, 1000000
)::bigint
$$;
