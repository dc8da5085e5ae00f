-- Raise QM403 if a row that authorized the caller of a write was disabled, revoked or removed since (`authority` in
-- authentication/revalidation.py describes the rows). NULL means that there is no caller to check.
-- Expiry is ignored: a credential that expires during a request does not end it.
-- It is a part of the statement that commits the write, and volatile, so that it sees revocations that were committed while
-- that statement waited for a lock. plpgsql caches the plans.
CREATE OR REPLACE FUNCTION identity_require_authority(p_authority jsonb) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    executor uuid := p_authority ->> 'executor';
    acting_in uuid := p_authority ->> 'organization';
    scopes jsonb := p_authority -> 'scopes';
    roles jsonb := p_authority -> 'roles';
    holds boolean := true;
BEGIN
    IF p_authority ?| '{key,session}' THEN
        holds := EXISTS (
            SELECT FROM users u
            JOIN memberships m ON m.user_id = u.id AND m.organization_id = acting_in
            JOIN organizations o ON o.id = m.organization_id AND o.suspended_at IS NULL
            WHERE u.id = executor AND u.disabled_at IS NULL
                AND (EXISTS (
                    SELECT FROM api_keys k
                    WHERE k.hash = decode(p_authority ->> 'key', 'hex') AND k.user_id = u.id AND k.revoked_at IS NULL
                        AND (k.organization_id IS NULL OR k.organization_id = acting_in)
                ) OR EXISTS (
                    SELECT FROM console_sessions s
                    WHERE s.hash = decode(p_authority ->> 'session', 'hex') AND s.user_id = u.id
                        AND s.revoked_at IS NULL
                ))
                AND (roles ? m.role OR EXISTS (
                    SELECT FROM role_bindings b
                    WHERE b.subject_user_id = executor AND b.organization_id = acting_in
                        AND b.scope_kind = 'Identity' AND scopes ? b.scope_id::text AND roles ? b.role
                ))
        );
    ELSIF p_authority ? 'deployment' THEN
        holds := EXISTS (
            SELECT FROM deployments d
            JOIN organizations o ON o.id = d.organization_id AND o.suspended_at IS NULL
            JOIN identities i ON i.id = d.daemon_identity_id AND i.disabled_at IS NULL
            JOIN versions v ON v.deployment_id = d.id AND v.revoked_at IS NULL
            JOIN client_credentials c ON c.deployment_id = d.id AND c.revoked_at IS NULL
            WHERE d.id = (p_authority ->> 'deployment')::uuid AND d.client_id = (p_authority ->> 'client')::uuid
                AND d.disabled_at IS NULL AND d.daemon_identity_id = executor
                AND v.id = (p_authority ->> 'version')::uuid
                AND c.id = (p_authority ->> 'credential')::uuid
                AND NOT EXISTS (SELECT FROM revoked_tokens r WHERE r.jti = p_authority ->> 'token')
                AND EXISTS (
                    SELECT FROM role_bindings b
                    WHERE b.subject_identity_id = executor AND scopes ? b.scope_id::text AND roles ? b.role
                )
        );
    END IF;
    IF holds AND p_authority ? 'principal' THEN
        holds := EXISTS (
            SELECT FROM identities i
            JOIN organizations o ON o.id = i.organization_id AND o.suspended_at IS NULL
            JOIN organizations payer ON payer.id = (p_authority ->> 'payer')::uuid AND payer.suspended_at IS NULL
            WHERE i.id = (p_authority ->> 'principal')::uuid AND i.disabled_at IS NULL
                AND (p_authority ->> 'distribution' IS NULL OR EXISTS (
                    SELECT FROM distributions d
                    WHERE d.id = (p_authority ->> 'distribution')::uuid AND d.disabled_at IS NULL
                ))
        );
    END IF;
    IF NOT holds THEN
        RAISE EXCEPTION 'the caller was revoked' USING ERRCODE = 'QM403';
    END IF;
    RETURN true;
END $$;
