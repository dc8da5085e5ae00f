-- Ask `files_vector` for files of one of these organizations (`o:`) or owners (`w:`), of a media type or, as `image`, of a
-- family of them, in whose name a word begins with each of these. NULL, which finds nothing, for a name without words.
CREATE OR REPLACE FUNCTION files_query(p_whose text[], p_media_type text, p_name text)
RETURNS tsquery LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT concat_ws(
        ' & ',
        '(' || (SELECT string_agg(quote_literal(whose), ' | ') FROM unnest(p_whose) AS whose) || ')',
        quote_literal('t:' || replace(lower(p_media_type), '\', '')),
        words.query
    )::tsquery
    FROM (
        SELECT string_agg(quote_literal('n:' || word) || ':*', ' & ') AS query FROM unnest(files_name_words(p_name)) AS word
    ) AS words
    WHERE p_whose <> '{}' AND (p_name IS NULL OR words.query IS NOT NULL)
$$;
