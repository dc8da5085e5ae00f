-- Give what a file is found by, one index for all: `o:` its organization, `w:` its owner, `t:` its media type, whole and
-- in the large, `n:` the words of its name.
CREATE OR REPLACE FUNCTION files_vector(p_organization_id uuid, p_owner_id uuid, p_media_type text, p_name text)
RETURNS tsvector LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT array_to_tsvector(
        ARRAY[
            'o:' || p_organization_id::text, 'w:' || p_owner_id::text,
            't:' || typed.whole, 't:' || split_part(typed.whole, '/', 1)
        ]
        || array(SELECT 'n:' || word FROM unnest(files_name_words(p_name)) AS word)
    )
    FROM (SELECT lower(trim(split_part(p_media_type, ';', 1))) AS whole) AS typed
$$;
