-- Whether an organization's grace period for unpaid storage is over. It is a part of every upload; plpgsql caches the plan.
CREATE OR REPLACE FUNCTION credits_storage_is_refused(p_organization_id uuid) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM credit_balances b
        WHERE b.organization_id = p_organization_id AND b.storage_refused_from <= clock_timestamp()
    );
END $$;
