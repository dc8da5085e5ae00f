-- A settlement that a power failure takes back is a call without a trace, so asynchronous commit is overruled.
CREATE OR REPLACE FUNCTION credits_be_durable() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
END $$;
