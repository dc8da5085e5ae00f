-- Overrule asynchronous commit for this transaction: a settlement that a power failure undoes would leave no trace.
CREATE OR REPLACE FUNCTION credits_be_durable() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
END $$;
