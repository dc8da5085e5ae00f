-- Whether an organization's storage is unpaid and its grace over. Part of every upload: plpgsql keeps the plan.
CREATE OR REPLACE FUNCTION credits_storage_is_refused(p_organization_id uuid) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM credit_balances b
        WHERE b.organization_id = p_organization_id AND b.storage_refused_from <= clock_timestamp()
    );
END $$;
