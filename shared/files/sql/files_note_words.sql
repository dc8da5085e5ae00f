-- Keep what a file is found by as its newest version has it: the trigger of `file_versions`.
CREATE OR REPLACE FUNCTION files_note_words() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO file_words (file_id, words)
    SELECT id, files_vector(organization_id, owner_id, NEW.media_type, NEW.file_name) FROM files WHERE id = NEW.file_id
    ON CONFLICT (file_id) DO UPDATE SET words = excluded.words;
    RETURN NULL;
END $$;
