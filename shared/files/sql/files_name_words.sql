-- Split a file's name into words as people search for them: lower case, without accents, by whatever is no letter or digit.
CREATE OR REPLACE FUNCTION files_name_words(p_name text) RETURNS text[] LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT array_remove(
        regexp_split_to_array(
            lower(regexp_replace(normalize(p_name, NFKD), '[\u0300-\u036f]', '', 'g')), '[^[:alnum:]]+'
        ),
        ''
    )
$$;
