-- Read what a worker is given with a turn that it claims: the task, the message, the behavior, and for whom the agent
-- works. The behavior's columns are null without it, the daemon's while the agent is disabled, the owner's likewise.
CREATE OR REPLACE FUNCTION read_claimed_turn(
    p_task uuid, p_message integer, p_deployment uuid, p_behavior uuid, p_owner uuid
) RETURNS TABLE (
    context_id text, organization_id uuid, caller_id uuid, principal_id uuid, task_state text, began_at timestamptz,
    last_sequence bigint, said text,
    kind text, name text, description text, model text, instructions text, script text, extensions text, tags text[],
    examples text[], input_modes text[], output_modes text[], is_default boolean, updated_at timestamptz,
    daemon_id uuid, version_id uuid, suspended_at timestamptz, bindings json, owner_kind text, owner_organization uuid
) LANGUAGE plpgsql STABLE SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    RETURN QUERY
    SELECT tasks.context_id, tasks.organization_id, tasks.caller_id, tasks.principal_id, tasks.state, tasks.created_at,
        tasks.last_sequence, task_messages.message,
        behaviors.kind, behaviors.name, behaviors.description, behaviors.model, behaviors.instructions,
        behaviors.script, behaviors.extensions, behaviors.tags, behaviors.examples, behaviors.input_modes,
        behaviors.output_modes, behaviors.is_default, behaviors.updated_at,
        daemon.id, deployments.active_version_id, organizations.suspended_at, (
            SELECT json_agg(json_build_array(held.role, held.scope_kind, held.scope_id)) FROM role_bindings held
            WHERE held.subject_identity_id = daemon.id
        ), owner.kind, owner.organization_id
    FROM tasks
    JOIN task_messages ON task_messages.task_id = tasks.id AND task_messages.number = p_message
    LEFT JOIN behaviors ON behaviors.id = p_behavior
    LEFT JOIN deployments ON deployments.id = p_deployment AND deployments.disabled_at IS NULL
    LEFT JOIN organizations ON organizations.id = deployments.organization_id
    LEFT JOIN identities daemon ON daemon.id = deployments.daemon_identity_id AND daemon.disabled_at IS NULL
    LEFT JOIN identities owner ON owner.id = p_owner AND owner.disabled_at IS NULL
    WHERE tasks.id = p_task;
END $$;
