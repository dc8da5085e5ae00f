-- The cost of a call at the prices of its hold: the exact sum, rounded up once, as `Prices.price` in
-- shared/credits/prices.py. `div` and not `/`, because a numeric quotient has only about sixteen digits.
-- Calls held by the previous release have no prices for parts; a part then costs as much as its whole.
CREATE OR REPLACE FUNCTION credits_cost(
    i invocations, prompt_tokens bigint, completion_tokens bigint, cached_tokens bigint, cache_write_tokens bigint,
    reasoning_tokens bigint
) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
SELECT div(
    (prompt_tokens - cached_tokens - cache_write_tokens)::numeric * i.prompt_price
        + cached_tokens::numeric * coalesce(i.cached_prompt_price, i.prompt_price)
        + cache_write_tokens::numeric * coalesce(i.cache_write_price, i.prompt_price)
        + (completion_tokens - reasoning_tokens)::numeric * i.completion_price
        + reasoning_tokens::numeric * coalesce(i.reasoning_price, i.completion_price)
        + CASE WHEN prompt_tokens + completion_tokens > 0 THEN i.request_price::numeric * 1000000 ELSE 0 END
        + 999999, 1000000
)::bigint
$$;
