-- Refuse updates and deletes of `ledger_entries`: the function of its trigger. Correct a mistake by an adjustment.
CREATE OR REPLACE FUNCTION refuse_ledger_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'ledger_entries is append-only';
END $$;
