"""A chat in a terminal, from the first line to the last, and through whatever ends it."""

from __future__ import annotations

import json

import pytest

from tests.chat.talk import Talk, Talker

SLOW = {"text": "one two three four", "pause_s": 300, "piece": 8}  # "one two ", and then nothing for long


def begin(talk: Talker, *steps: object, words: tuple[str, ...] = ()) -> Talk:
    chat = talk("--model", talk.write_script(*steps), *words)
    chat.wait("/help lists commands")
    chat.wait("scout> ")
    return chat


def test_a_conversation(talk: Talker) -> None:
    note = {"name": "remember", "arguments": {"data": "the lighthouse is at the north end"}}
    chat = begin(talk, {"text": "I keep **that**.", "calls": [note]}, "It is *kept*.", "Bye.")
    chat.say("The lighthouse is at the north end.")
    shown = chat.wait("It is kept.")
    assert "✓ remember data=the lighthouse is at the north end" in shown
    assert "I keep that." in shown
    at = chat.mark()
    chat.say("/search lighthouse")
    chat.wait("north end", at)
    at = chat.mark()
    chat.say("/undo")
    chat.wait("scout> ", at)
    at = chat.mark()
    chat.say("/search lighthouse")
    assert "remember" not in chat.wait("scout> ", at)[at + 25 :]
    for command, word in (("/status", "script:"), ("/context", "history"), ("/help", "/permit")):
        at = chat.mark()
        chat.say(command)
        chat.wait(word, at)
        chat.wait("scout> ", at)
    at = chat.mark()
    chat.say("/nonsense")
    chat.wait("there is no command /nonsense", at)
    chat.wait("scout> ", at)
    chat.say("bye \\")
    chat.wait("… ", at)
    at = chat.mark()
    chat.say("now")
    chat.wait("Bye.", at)
    chat.wait("scout> ", at)
    assert chat.leave("\x04") == 0
    said = json.loads(talk.run("--agent", "scout", "message", "list", "--json").stdout)["data"]["items"]
    assert [each["text"] for each in said if each["role"] == "user"] == [
        *("bye \nnow", "The lighthouse is at the north end.")
    ]
    assert {each["trust"] for each in said} == {"partner"}
    history = talk.home / ".local/share/dgent/chat_history"
    assert "The lighthouse is" in history.read_text()
    assert history.stat().st_mode & 0o077 == 0


def test_ctrl_c_interrupts_and_resume_goes_on(talk: Talker) -> None:
    chat = begin(talk, SLOW, "And so on.")
    chat.say("count")
    chat.wait("one two")
    at = chat.mark()
    chat.type("\x03")
    chat.wait("interrupted", at)
    chat.wait("scout> ", at)
    at = chat.mark()
    chat.say("/resume")
    chat.wait("And so on.", at)
    chat.wait("scout> ", at)
    chat.press("\x03", "leaves", at)
    assert chat.leave("\x03") == 0


def test_ctrl_c_twice_leaves_and_the_next_chat_offers_to_resume(talk: Talker) -> None:
    chat = begin(talk, SLOW)
    chat.say("count for me")
    chat.wait("one two")
    at = chat.mark()
    chat.type("\x03")
    chat.wait("interrupted", at)
    chat.wait("scout> ", at)
    assert chat.leave("\x03") == 0
    chat = talk("--model", talk.write_script("Here it goes on.", name="second.jsonl"))
    shown = chat.wait("/resume goes on with it")
    assert "a turn was interrupted" in shown and "count for me" in shown
    chat.say("/resume")
    chat.wait("Here it goes on.")


def test_killed_in_the_middle_nothing_is_done_twice(talk: Talker) -> None:
    note = {"name": "remember", "arguments": {"data": "once only"}}
    chat = begin(talk, {"text": "Keeping it.", "calls": [note]}, SLOW)
    chat.say("remember this")
    chat.wait("one two")
    chat.kill()
    chat = talk("--model", talk.write_script("It was kept before.", name="second.jsonl"), "--resume")
    shown = chat.wait("It was kept before.")
    assert "a turn was cut off" in shown
    chat.say("/quit")
    assert chat.end() == 0
    found = json.loads(talk.run("recall", "--json").stdout)["data"]["items"]
    assert [each["data"] for each in found] == [{"text": "once only"}]


def consent_chat(talk: Talker, *steps: object) -> Talk:
    (talk.home / ".config/dgent").mkdir(parents=True)
    rules = '[agent.scout]\nrules = [{ rule = "consent", tools = ["remember"] }]\n'
    (talk.home / ".config/dgent/config.toml").write_text(rules)
    return begin(talk, *steps)


def remember(text: str, answer: str = "") -> dict[str, object]:
    return {"text": answer, "calls": [{"name": "remember", "arguments": {"data": text}}]}


def stored(talk: Talker) -> list[str]:
    found = json.loads(talk.run("recall", "--json").stdout)["data"]["items"]
    return sorted(each["data"]["text"] for each in found)


def test_consent_is_asked_in_the_terminal(talk: Talker) -> None:
    steps = [remember("one"), "1.", remember("two"), "2.", remember("three"), "3.", remember("four"), "4."]
    chat = consent_chat(talk, *steps)
    answers = (("y", "1."), ("n", "2."), ("perhaps\na", "3."), (None, "4."))
    for said, end in answers:
        at = chat.mark()
        chat.say("go on")
        if said is not None:
            for line in said.split("\n"):
                chat.wait("allow it?", at)
                at = chat.mark()
                chat.say(line)
        chat.wait(end, at)
        chat.wait("scout> ", at)
    assert stored(talk) == ["four", "one", "three"], "no to the second, and always from the third on"


def test_consent_for_some_time_is_kept(talk: Talker) -> None:
    chat = consent_chat(talk, remember("one"), "1.", remember("two"), "2.")
    chat.say("go on")
    chat.wait("allow it?")
    chat.say("d soon")
    at = chat.wait("not a time").index("not a time")
    chat.wait("allow it?", at)
    chat.say("d 2h")
    chat.wait("1.")
    at = chat.mark()
    chat.say("/permit")
    chat.wait("scout may call remember", at)
    chat.say("go on")
    chat.wait("2.")
    assert stored(talk) == ["one", "two"]


def test_what_was_typed_before_a_question_is_no_answer(talk: Talker) -> None:
    slow = {**remember("one", "wait for it, please"), "pause_s": 1, "piece": 10}
    chat = consent_chat(talk, slow, "It ended.")
    chat.say("go on")
    chat.wait("wait")
    chat.type("y\n")
    at = chat.mark()
    chat.wait("allow it?", at)
    chat.say("n")
    chat.wait("It ended.")
    assert stored(talk) == []


def test_an_interrupt_while_consent_is_asked(talk: Talker) -> None:
    chat = consent_chat(talk, remember("one"), "1.")
    chat.say("go on")
    chat.wait("allow it?")
    at = chat.mark()
    chat.press("\x03", "scout> ", at)
    chat.wait("scout> ", at)
    assert stored(talk) == []


def test_another_model(talk: Talker) -> None:
    chat = begin(talk, "From the first.")
    chat.say("/model script:nowhere.jsonl")
    chat.wait("there is no script")
    other = talk.write_script("From the second.", name="second.jsonl")
    chat.say(f"/model {other}")
    chat.wait("second.jsonl")
    chat.say("hello")
    chat.wait("From the second.")


def test_hostile_text_does_nothing_to_the_terminal(talk: Talker) -> None:
    evil = "\x1b]0;owned\x07\x1b[2J&#27;[2J\u202e"
    calls = [{"name": "remember", "arguments": {"data": evil, "tag": [evil]}}]
    chat = begin(talk, {"text": f"look {evil}", "calls": calls}, f"end {evil} over.", words=("--verbose",))
    chat.say("go")
    chat.wait("over.")
    chat.say("/quit")
    chat.end()
    assert "\x1b]0" not in chat.raw and "\x1b[2J" not in chat.raw and "\u202e" not in chat.raw


def test_the_store_says_what_was_wrong_and_the_chat_goes_on(talk: Talker) -> None:
    chat = begin(talk, {"error": "model_refused"}, "Better.")
    chat.say("hello")
    chat.wait("error:")
    chat.say("again")
    chat.wait("Better.")


# -- scripts ------------------------------------------------------------------------------------


def test_one_message(talk: Talker) -> None:
    model = talk.write_script({"text": "Hm. ", "calls": [{"name": "recall", "arguments": {}}]}, "Forty-two.")
    done = talk.run("chat", "--agent", "scout", "--model", model, "-m", "what is it?")
    assert (done.returncode, done.stdout) == (0, "Hm. \nForty-two.\n")
    assert "recall" in done.stderr and "\x1b" not in done.stdout + done.stderr


def test_a_message_by_a_pipe_and_events_as_lines(talk: Talker) -> None:
    model = talk.write_script("Forty-two.")
    done = talk.run("chat", "--agent", "scout", "--model", model, "--json", stdin="what\nis it?\n")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [each["type"] for each in lines] == ["text", "usage_report", "done"]
    assert lines[-1]["text"] == "Forty-two."


@pytest.mark.parametrize("yes", [True, False])
def test_without_a_terminal_consent_is_refused_or_given_by_yes(talk: Talker, yes: bool) -> None:
    consent_chat(talk, "unused")
    model = talk.write_script(remember("one"), "Well.")
    words = ("chat", "--agent", "scout", "--model", model, "-m", "go", *(["--yes"] if yes else []))
    done = talk.run(*words)
    assert done.stdout == "Well.\n"
    assert stored(talk) == (["one"] if yes else [])


def test_failures_of_scripts(talk: Talker) -> None:
    failed = talk.write_script({"error": "model_refused"})
    done = talk.run("chat", "-m", "x")
    assert done.returncode == 3 and "no model is set for assistant" in done.stderr
    done = talk.run("chat", "--agent", "scout", "--model", failed, "-m", "x")
    assert (done.returncode, done.stdout) == (1, "")
    assert "error:" in done.stderr
    assert talk.run("chat", "--model", failed, stdin="  ").returncode == 2
    done = talk.run("chat", "-m", "x")
    assert done.returncode == 3 and "no model is set for scout" in done.stderr  # the only one there is
    done = talk.run("chat", "--model", "anthropic:claude-sonnet-5-5", "-m", "x")
    assert done.returncode == 3 and "ANTHROPIC_API_KEY" in done.stderr
    done = talk.run("chat", "--model", "nonsense", "-m", "x")
    assert done.returncode == 2


def test_two_chats_with_one_agent(talk: Talker) -> None:
    first = consent_chat(talk, remember("one"), "First.", "First again.")
    first.say("keep it")
    first.wait("allow it?")
    second = talk("--model", talk.write_script("Second.", "Second again.", name="second.jsonl"))
    assert "keep it" not in second.wait("scout> "), "what another process works on is not to be resumed"
    second.say("hello")
    second.wait("Second.")
    first.say("y")
    first.wait("First.")
    first.say("more")
    first.wait("First again.")
    second.say("more")
    second.wait("Second again.")
    said = json.loads(talk.run("--agent", "scout", "message", "batches", "--json").stdout)["data"]["items"]
    assert [each["state"] for each in said] == ["complete"] * 4
    assert stored(talk) == ["one"]
