-- Write updates of a task in their order: its events, what was said in them, its new state, and the end of its turns.
-- The result is 'written', or nothing was, because: 'lost' (the lease is no longer the turn's), 'repeated' (the turn has
-- more than p_written updates already), 'visible' (only a task that its client does not see can end without a status),
-- 'followed' (updates are to be posted, which a caller does that has p_is_posted). Without p_written they are none of
-- the turn's own, and not counted.
CREATE OR REPLACE FUNCTION record_updates(
    p_task uuid, p_turn uuid, p_lease uuid, p_lease_seconds double precision, p_written integer, p_has_spoken boolean,
    p_kinds text[], p_events text[], p_messages text[], p_clock text, p_state text, p_status_message integer,
    p_artifacts text, p_outcome text, p_others text, p_is_posted boolean,
    OUT result text, OUT recorded_at timestamptz, OUT updates integer, OUT next_turn uuid, OUT is_followed boolean
) LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    t record;
    v_told integer := cardinality(p_events);
    v_counted integer := CASE WHEN p_written IS NULL THEN 0 ELSE v_told END;
    v_said integer := cardinality(array_remove(p_messages, NULL));
    v_is_shown boolean := p_kinds && ARRAY['status', 'artifact'];
    v_message integer;
    is_lost boolean;
BEGIN
    -- Locked before all else: what follows reads what those before us have committed.
    SELECT last_sequence, last_message, is_visible, distribution_id INTO t FROM tasks WHERE id = p_task FOR UPDATE;
    IF FOUND AND p_turn IS NOT NULL THEN
        SELECT turn.updates INTO updates FROM task_turns turn WHERE turn.id = p_turn AND turn.lease_id = p_lease;
    END IF;
    is_lost := NOT FOUND;
    is_followed := t.distribution_id IS NOT NULL
        OR EXISTS (SELECT FROM task_push_configurations WHERE task_id = p_task);
    result := CASE
        WHEN is_lost THEN 'lost'
        WHEN updates > p_written THEN 'repeated'
        WHEN p_outcome IS NOT NULL AND NOT v_is_shown AND t.is_visible THEN 'visible'
        WHEN is_followed AND v_is_shown AND NOT p_is_posted THEN 'followed'
        ELSE 'written'
    END;
    IF result <> 'written' THEN
        RETURN;
    END IF;
    recorded_at := date_trunc('milliseconds', clock_timestamp());
    v_message := t.last_message + p_status_message;
    IF v_said > 0 THEN
        INSERT INTO task_messages (task_id, number, message)
        SELECT p_task, t.last_message + row_number() OVER (ORDER BY place), said
        FROM unnest(p_messages) WITH ORDINALITY AS given (said, place) WHERE said IS NOT NULL;
    END IF;
    INSERT INTO task_events (task_id, sequence, kind, event)
    SELECT p_task, t.last_sequence + place, kind, CASE kind WHEN 'status' THEN replace(event, p_clock,
        to_char(recorded_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')) ELSE event END
    FROM unnest(p_kinds, p_events) WITH ORDINALITY AS given (kind, event, place);
    UPDATE tasks SET last_sequence = last_sequence + v_told, last_message = last_message + v_said,
        is_visible = is_visible OR v_is_shown, artifacts = coalesce(p_artifacts, artifacts),
        state = coalesce(p_state, state),
        status_message = CASE WHEN p_state IS NULL THEN status_message ELSE v_message END,
        status_at = CASE WHEN p_state IS NULL THEN status_at ELSE recorded_at END
    WHERE id = p_task;
    IF p_outcome IS NULL AND p_others IS NULL THEN
        -- The end of the lease is indexed: it is put off when half is over, not by every update.
        UPDATE task_turns turn SET updates = turn.updates + v_counted, has_spoken = has_spoken OR p_has_spoken,
            lease_until = CASE WHEN lease_until > clock_timestamp() + make_interval(secs => p_lease_seconds / 2)
                THEN lease_until ELSE clock_timestamp() + make_interval(secs => p_lease_seconds) END
        WHERE id = p_turn;
        RETURN;
    END IF;
    UPDATE task_turns turn SET state = 'done', lease_id = NULL, lease_until = NULL,
        outcome = CASE WHEN id = p_turn THEN p_outcome ELSE p_others END,
        reply = CASE WHEN id = p_turn AND NOT v_is_shown THEN v_message END,
        updates = CASE WHEN id = p_turn THEN turn.updates + v_counted ELSE turn.updates END
    WHERE task_id = p_task AND state <> 'done' AND (id = p_turn OR p_others IS NOT NULL);
    UPDATE task_turns SET is_next = true
    WHERE id = (SELECT id FROM task_turns WHERE task_id = p_task AND state = 'queued' ORDER BY message LIMIT 1)
    RETURNING id INTO next_turn;
END $$;
