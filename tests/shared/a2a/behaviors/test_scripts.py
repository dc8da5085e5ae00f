"""What a script says is what happens: every step, every way to match, and questions across messages."""

import textwrap
from pathlib import Path
from typing import Any, cast

import pytest

from shared.a2a import exact_json
from shared.a2a.behaviors import script_context, turn_cancellation
from shared.a2a.behaviors.script_parser import ScriptInvalid, parse_script
from shared.a2a.behaviors.script_player import ScriptedCrash
from shared.a2a.behaviors.scripted import ScriptedBehavior
from shared.a2a.behaviors.scripted_errors import find_refusal
from shared.a2a.behaviors.stored_files import StoredFiles
from shared.a2a.types import Message, MessageRole, Part, TaskState
from shared.a2a.updates import ArtifactProduced, Replied, StatusChanged, Turn, Update
from shared.ids import new_id
from tests.shared.a2a.behaviors.turns import make_turn, message

NO_FILES = cast("StoredFiles", None)


def steps(text: str) -> str:
    """A script of one rule for everything."""
    return "rules:\n- steps:\n" + textwrap.indent(textwrap.dedent(text).strip("\n"), "  ")


def run(turn: Turn) -> list[Update]:
    return list(ScriptedBehavior(NO_FILES).run(turn))


def play(script: str, *said: Message | str) -> list[Update]:
    """The updates about the last of a task's messages."""
    task_id = new_id()
    messages = [one if isinstance(one, Message) else message(one, task_id=task_id) for one in said]
    turn = make_turn(messages[-1], script=script, history=messages[:-1], task_id=task_id)
    return run(turn)


def told(updates: list[Update]) -> list[tuple[str, str | None]]:
    """Each update in two words."""
    return [_told(update) for update in updates]


def _told(update: Update) -> tuple[str, str | None]:
    if isinstance(update, StatusChanged):
        return update.state.removeprefix("TASK_STATE_").lower(), _text(update.message)
    if isinstance(update, Replied):
        return "message", _text(update.message)
    return "artifact", "".join(part.text or "" for part in update.artifact.parts)


def _text(message: Message | None) -> str | None:
    return None if message is None else "\n".join(part.text or "" for part in message.parts)


def artifacts(updates: list[Update]) -> list[ArtifactProduced]:
    return [update for update in updates if isinstance(update, ArtifactProduced)]


def test_steps_follow_each_other_and_a_sequence_that_runs_out_completes() -> None:
    updates = play(steps("- status: Looking\n- artifact: Found\n- status:"), "hello")
    assert told(updates) == [
        ("working", "Looking"),
        ("artifact", "Found"),
        ("working", None),
        ("completed", None),
    ]


@pytest.mark.parametrize(
    ("verb", "state"),
    [
        ("complete", TaskState.COMPLETED),
        ("fail", TaskState.FAILED),
        ("reject", TaskState.REJECTED),
        ("cancel", TaskState.CANCELED),
        ("input_required", TaskState.INPUT_REQUIRED),
        ("auth_required", TaskState.AUTH_REQUIRED),
    ],
)
def test_every_state_in_which_a_turn_can_end_can_be_said(verb: str, state: TaskState) -> None:
    (update,) = play(steps(f"- {verb}: So it is"), "hello")
    assert isinstance(update, StatusChanged)
    assert (update.state, _text(update.message)) == (state, "So it is")


@pytest.mark.parametrize(
    ("match", "said", "matches"),
    [
        ("text: Hello there", " Hello there\n", True),
        ("text: Hello there", "hello there", False),
        ("{text: Hello there, ignore_case: true}", "HELLO THERE", True),
        ("contains: ell", "hello", True),
        ("contains: ELL", "hello", False),
        ("{contains: ELL, ignore_case: true}", "hello", True),
        ('regex: "^h.+o$"', "hello", True),
        ('regex: "^h.+O$"', "hello", False),
        ('{regex: "^h.+O$", ignore_case: true}', "hello", True),
        ("message_id_prefix: m-", "anything", True),
        ("message_id_prefix: n-", "anything", False),
        ("{message_id_prefix: m-, contains: thing}", "anything", True),
        ("{message_id_prefix: m-, contains: nothing}", "anything", False),
    ],
)
def test_rules_match_by_id_text_or_expression(match: str, said: str, *, matches: bool) -> None:
    script = (
        f"rules:\n- match: {match if match[0] == '{' else '{' + match + '}'}\n  steps: [complete: yes it is]"
    )
    (update,) = play(script, message(said, message_id="m-1"))
    assert told([update]) == (
        [("completed", "yes it is")]
        if matches
        else [("rejected", "The script has no rule for this message.")]
    )


def test_the_first_rule_that_matches_decides() -> None:
    script = "rules:\n- match: {contains: a}\n  steps: [complete: first]\n- steps: [complete: second]"
    assert told(play(script, "cab")) == [("completed", "first")]
    assert told(play(script, "dog")) == [("completed", "second")]


def test_an_expression_that_takes_too_long_does_not_match(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script_context, "REGEX_TIMEOUT_SECONDS", 0.01)
    script = 'rules:\n- match: {regex: "^(a|aa)+$"}\n  steps: [complete: matched]\n- steps: [complete: other]'
    assert told(play(script, "aaa")) == [("completed", "matched")]
    assert told(play(script, "a" * 60 + "b")) == [("completed", "other")]


def test_a_message_can_be_answered_with_a_message() -> None:
    (update,) = play(steps("- message: {text: pong, metadata: {a: 1}, extensions: [urn:x]}"), "ping")
    assert isinstance(update, Replied)
    assert (_text(update.message), update.message.metadata, update.message.extensions) == (
        "pong",
        {"a": 1},
        ("urn:x",),
    )


def test_an_artifact_has_all_that_its_step_says() -> None:
    (update, _) = play(
        steps(
            """
            - artifact:
                id: a
                name: name
                description: description
                data: {n: 9007199254740993, d: 1.10, z: null}
                media_type: application/json
                metadata: {m: [1, true]}
                extensions: [urn:x]
                event_metadata: {e: 2}
                append: true
                last_chunk: false
            """
        ),
        "hello",
    )
    assert isinstance(update, ArtifactProduced)
    assert (update.append, update.last_chunk, update.metadata) == (True, False, {"e": 2})
    assert exact_json.render(update.artifact.to_wire()) == (
        '{"artifactId":"a","name":"name","description":"description","parts":[{"data":{"n":9007199254740993,'
        '"d":1.10,"z":null},"mediaType":"application/json"}],"metadata":{"m":[1,true]},"extensions":["urn:x"]}'
    )


def test_parts_of_every_kind_are_said() -> None:
    (update, _) = play(
        steps(
            """
            - artifact:
                parts:
                - words
                - {raw: "aGk=", media_type: text/plain, filename: hi.txt}
                - {url: "https://example.com/x", metadata: {k: v}}
                - data:
            """
        ),
        "hello",
    )
    assert artifacts([update])[0].artifact.to_wire()["parts"] == [
        {"text": "words"},
        {"raw": "aGk=", "filename": "hi.txt", "mediaType": "text/plain"},
        {"url": "https://example.com/x", "metadata": {"k": "v"}},
        {"data": None},
    ]


def test_chunks_make_one_artifact_and_the_last_says_so() -> None:
    script = steps("- artifact: {id: a, name: n, chunks: [one, two, three], event_metadata: {e: 1}}")
    made = artifacts(play(script, "hello"))
    assert [(one.append, one.last_chunk, one.artifact.name) for one in made] == [
        (False, False, "n"),
        (True, False, None),
        (True, True, None),
    ]
    assert {one.artifact.artifact_id for one in made} == {"a"}
    assert [one.metadata for one in made] == [{"e": 1}] * 3


def test_artifacts_without_an_id_are_numbered_through_the_task() -> None:
    script = steps("- artifact: a\n- artifact: b\n- input_required: more?\n- artifact: c")
    assert [one.artifact.artifact_id for one in artifacts(play(script, "x"))] == ["artifact-1", "artifact-2"]
    assert [one.artifact.artifact_id for one in artifacts(play(script, "x", "y"))] == ["artifact-3"]


@pytest.mark.parametrize("form", ["status", "artifact", "complete", "message"])
def test_an_echo_gives_back_what_was_received(form: str) -> None:
    said = message(
        parts=(Part(text="words"), Part.model_validate({"data": exact_json.parse('{"n":1.10,"e":1e400}')})),
        metadata=exact_json.parse('{"u":{"n":9007199254740993}}'),
        extensions=("u",),
    )
    first = play(steps(f"- echo: {form}"), said)[0]
    echoed: Any = first.artifact if isinstance(first, ArtifactProduced) else first.message
    wire = echoed.to_wire()
    assert exact_json.render([wire["parts"], wire["metadata"], wire["extensions"]]) == (
        '[[{"text":"words"},{"data":{"n":1.10,"e":1e400}}],{"u":{"n":9007199254740993}},["u"]]'
    )


def test_steps_are_repeated_and_counted() -> None:
    script = steps("- repeat: {times: 3, steps: [status: '${n} of 3', artifact: {id: 'a${n}', text: x}]}")
    script = script.replace("[status: '${n} of 3', artifact", "[{status: '${n} of 3'}, {artifact").replace(
        "text: x}]}", "text: x}}]}"
    )
    updates = play(script, "hello")
    assert [word for state, word in told(updates) if state == "working"] == ["1 of 3", "2 of 3", "3 of 3"]
    assert [one.artifact.artifact_id for one in artifacts(updates)] == ["a1", "a2", "a3"]


def test_places_stand_for_what_was_said() -> None:
    script = (
        'rules:\n- match: {regex: "order (?P<number>\\\\d+) of (\\\\w+)"}\n'
        '  steps: [complete: "${number} ${2} ${text} ${context_id} ${message_id} ${unknown} $${text} $5"]'
    )
    said = message("order 7 of bread", message_id="m-1")
    assert told(play(script, said)) == [
        ("completed", "7 bread order 7 of bread context m-1 ${unknown} ${text} $5")
    ]


BOOKING = """
rules:
- match: {text: book}
  steps:
  - input_required:
      text: When?
      then:
      - match: {text: never}
        steps: [cancel: As you like]
      - match: {text: later}
        steps:
        - auth_required: Who are you?
        - status: "Welcome, ${text}"
  - status: "For ${text}"
  - input_required: Sure?
  - complete: Booked
- steps: [reject: "What?"]
"""


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        (["book"], [("input_required", "When?")]),
        (["book", "today"], [("working", "For today"), ("input_required", "Sure?")]),
        (["book", "today", "yes"], [("completed", "Booked")]),
        (["book", "never"], [("canceled", "As you like")]),
        (["book", "later"], [("auth_required", "Who are you?")]),
        (
            ["book", "later", "Ann"],
            [("working", "Welcome, Ann"), ("working", "For Ann"), ("input_required", "Sure?")],
        ),
        (["book", "later", "Ann", "yes"], [("completed", "Booked")]),
        (["nonsense"], [("rejected", "What?")]),
    ],
)
def test_a_question_is_answered_by_the_next_message(
    said: list[str], answer: list[tuple[str, str | None]]
) -> None:
    assert told(play(BOOKING, *said)) == answer


def test_the_words_of_other_tasks_and_of_the_agent_do_not_count() -> None:
    task_id, other = new_id(), new_id()
    history = (
        message("book", task_id=other),
        message("book", task_id=task_id),
        message("When?", task_id=task_id, role=MessageRole.AGENT),
    )
    turn = make_turn(message("never", task_id=task_id), script=BOOKING, history=history, task_id=task_id)
    assert told(run(turn)) == [("canceled", "As you like")]


def test_task_continues_with_the_new_script_after_a_change() -> None:
    assert told(play(steps("- complete: new"), "book", "today")) == [("completed", "new")]


def test_what_is_said_again_has_the_same_ids() -> None:
    turn = make_turn(script=steps("- status: a\n- artifact: b\n- complete: c"))
    assert run(turn) == run(turn)


def test_ids_differ_from_turn_to_turn() -> None:
    script = steps("- complete: c")
    ids = {cast("Any", run(make_turn(script=script))[0]).message.message_id for _ in range(3)}
    assert len(ids) == 3


def test_a_crash_is_raised_and_silence_ends() -> None:
    with pytest.raises(ScriptedCrash):
        play(steps("- status: a\n- crash: true"), "hello")
    assert told(play(steps("- status: a\n- silence: true"), "hello")) == [("working", "a")]
    assert play(steps("- silence: true"), "hello") == []


@pytest.mark.parametrize("rest", ["- delay: 3600\n- complete:", "- hang: true"])
def test_waiting_ends_when_the_turn_is_cancelled(rest: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turn_cancellation, "POLL_SECONDS", 0.001)
    looks = iter([False, False, False, True])
    turn = make_turn(script=steps(f"- status: a\n{rest}"), is_cancelled=lambda: next(looks, True))
    assert told(run(turn)) == [("working", "a")]


def test_requests_can_be_refused_with_every_error() -> None:
    reasons = (
        "TASK_NOT_FOUND TASK_NOT_CANCELABLE PUSH_NOTIFICATION_NOT_SUPPORTED UNSUPPORTED_OPERATION"
        " CONTENT_TYPE_NOT_SUPPORTED INVALID_AGENT_RESPONSE EXTENDED_AGENT_CARD_NOT_CONFIGURED"
        " EXTENSION_SUPPORT_REQUIRED VERSION_NOT_SUPPORTED INVALID_PARAMS PERMISSION_DENIED UNAVAILABLE"
    )
    for reason in reasons.split():
        refusal = find_refusal(parse_script(steps(f"- error: {reason}")), message())
        assert refusal is not None
        assert refusal.code == reason.lower()
    table = "{reason: RATE_LIMITED, message: 'Not ${text}', retry_after_seconds: 3}"
    limited = find_refusal(parse_script(steps(f"- error: {table}")), message("now"))
    assert limited is not None
    assert (limited.detail, limited.retry_after_seconds) == ("Not now", 3)
    assert find_refusal(parse_script(steps("- complete:")), message()) is None


@pytest.mark.parametrize(
    ("script", "problems"),
    [
        ("", ["script:1: the script: must be a mapping"]),
        ("rules: [", ["script:1: expected the node content, but found '<stream end>'"]),
        ("rules:\n- steps:\n  - statsu: x", ["script:3: rules[0].steps[0].statsu: is not a known key"]),
        (
            "rules:\n- steps:\n  - status: x\n    delay: 1",
            ["script:3: rules[0].steps[0]: must hold exactly one of "],
        ),
        ("rules:\n- steps:\n  - delay: soon", ["script:3: rules[0].steps[0].delay: must be a number"]),
        (
            "rules:\n- steps:\n  - artifact:\n      parts:\n      - {text: a}\n      - {txt: a}",
            ["script:6: rules[0].steps[0].artifact.parts[1].txt: is not a known key"],
        ),
        (
            "rules:\n- steps:\n  - artifact: {raw: '?'}",
            ["script:3: rules[0].steps[0].artifact.raw: must be base64"],
        ),
        (
            "rules:\n- match: {regex: '('}\n  steps: [complete: ]",
            ["script:2: rules[0].match.regex: is not a regular expression: missing ) at position 1"],
        ),
        (
            "rules:\n- steps: [complete: ]\n- steps: [complete: ]",
            ["script:3: rules[1]: is never reached: the rule before it matches every message"],
        ),
        (
            "rules:\n- steps:\n  - complete:\n  - status: x",
            ["script:4: rules[0].steps[1]: is never reached: the step before it is the last"],
        ),
        (
            "rules:\n- steps:\n  - status: x\n  - message: y",
            ["script:4: rules[0].steps[1]: answers instead of a task"],
        ),
        (
            "rules:\n- steps:\n  - input_required:\n      text: x\n      then:\n      - steps:\n        - message: y",
            ["script:7: rules[0].steps[0].input_required.then[0].steps[0]: answers instead of a task"],
        ),
        (
            "rules:\n- steps:\n  - status: x\n  - error: INVALID_PARAMS",
            ["script:4: rules[0].steps[1]: refuses"],
        ),
        (
            "rules:\n- steps:\n  - error: NONSENSE",
            ["script:3: rules[0].steps[0].error.reason: must be 'task_not"],
        ),
        (
            "rules:\n- steps:\n  - repeat: {times: 200, steps: [{repeat: {times: 200, steps: [{status: }]}}]}",
            ["script:2: rules[0].steps: makes more than 10,000 steps"],
        ),
        ("rules:\n- steps: [status: a]\n  steps: [status: b]", ["script:3: steps stands here twice"]),
        ("rules: !!python/object:os.system x", ["script:1: tags are not understood here"]),
        ("rules:\n- &a [*a]", ["script:1: is nested too deeply"]),
        (
            "rules:\n- match: {}\n  steps:\n  - hang: false\n  - status: {metadata: {a: 1}}",
            [
                "script:2: rules[0].match: must hold",
                "script:4: rules[0].steps[0].hang: must be",
                "script:5: rules[0]",
            ],
        ),
    ],
)
def test_mistakes_are_named_by_line_and_key(script: str, problems: list[str]) -> None:
    with pytest.raises(ScriptInvalid) as invalid:
        parse_script(script)
    assert len(invalid.value.problems) == len(problems)
    for found, expected in zip(invalid.value.problems, problems, strict=True):
        assert found.startswith(expected)


def test_a_file_is_read_again_when_it_has_changed(tmp_path: Path) -> None:
    path = tmp_path / "agent.yaml"
    behavior = ScriptedBehavior(NO_FILES, path=path)

    def said() -> list[tuple[str, str | None]]:
        return told(list(behavior.run(make_turn())))

    assert said() == [
        (
            "failed",
            "The agent's script cannot be used.\nagent.yaml: cannot be read: No such file or directory",
        )
    ]
    path.write_text(steps("- complete: one"))
    assert said() == [("completed", "one")]
    path.write_text(steps("- complete: another"))
    assert said() == [("completed", "another")]
    path.write_text("rules:\n- {}")
    assert said() == [
        ("failed", "The agent's script cannot be used.\nagent.yaml:2: rules[0].steps: is required")
    ]
    path.write_text(steps("- complete: one"))
    assert said() == [("completed", "one")]
