"""Sessions of an editor, by the official client over a real process, all messages checked by the schema."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from pathlib import Path

import acp
import pytest
from acp import schema

import dgent
from dgent.messages.messages import Messages
from tests.acp.editor import call, start

FIX = call("edit", path="a.py", old="1", new="2")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    (root / "a.py").write_text("x = 1\n")
    return root


async def test_hello_and_an_answer(tmp_path: Path, project: Path) -> None:
    steps = [{"thinking": "a greeting", "text": "Hello there, how are you?"}]
    async with start(tmp_path, steps) as editor:
        hello = await editor.agent.initialize(protocol_version=99)
        assert hello.protocol_version == 1
        can = hello.agent_capabilities
        assert can is not None
        assert can.load_session
        assert can.session_capabilities is not None
        assert can.session_capabilities.resume is not None
        made = await editor.agent.new_session(cwd=str(project), mcp_servers=[])
        assert made.modes is not None
        assert [each.id for each in made.modes.available_modes] == ["plan", "ask", "code", "auto"]
        done = await editor.prompt(made.session_id, "hello")
        assert done.stop_reason == "end_turn"
        assert done.usage.total_tokens > 0
        assert editor.text() == "Hello there, how are you?"
        assert editor.text("agent_thought_chunk") == "a greeting"
        assert editor.of("usage_update")[0].size > 0
        names = [each.name for each in editor.of("available_commands_update")[0].available_commands]
        assert names == ["resume", "undo", "context"]
        listed = await editor.agent.list_sessions()
        assert [(each.session_id, each.title) for each in listed.sessions] == [(made.session_id, "hello")]
        assert (await editor.agent.list_sessions(cwd="/elsewhere")).sessions == []
        assert editor.checker.checked > 8


async def test_an_edit_is_asked_for_shown_and_taken_back(tmp_path: Path, project: Path) -> None:
    async with start(tmp_path, [FIX, {"text": "done"}]) as editor:
        session = (await editor.agent.new_session(cwd=str(project), mcp_servers=[])).session_id
        done = await editor.prompt(session, "make it 2")
        assert done.stop_reason == "end_turn"
        ((asked, options),) = editor.asked
        assert [each.kind for each in options] == ["allow_once", "allow_always", "reject_once"]
        (diff,) = asked.content
        assert (diff.path, diff.old_text, diff.new_text) == (str(project / "a.py"), "1", "2")
        (card,) = editor.of("tool_call")
        assert (card.title, card.kind, card.status) == ("edit a.py", "edit", "in_progress")
        assert card.locations[0].path == str(project / "a.py")
        assert card.tool_call_id == asked.tool_call_id
        (end,) = editor.of("tool_call_update")
        assert end.status == "completed"
        assert (end.content[0].old_text, end.content[0].new_text) == ("x = 1\n", "x = 2\n")
        assert (project / "a.py").read_text() == "x = 2\n"
        await editor.prompt(session, "/undo")
        assert "Took back" in editor.text()
        assert (project / "a.py").read_text() == "x = 1\n"
        await editor.prompt(session, "/undo")
        assert "No files were changed" in editor.text()


async def test_what_is_not_a_yes_is_a_no(tmp_path: Path, project: Path) -> None:
    async with start(tmp_path, [FIX, {"text": "a pity"}]) as editor:
        answers: list[str | None] = ["deny", None, "nonsense"]
        editor.choose = lambda _: answers.pop()
        for _ in range(3):
            session = (await editor.agent.new_session(cwd=str(project), mcp_servers=[])).session_id
            assert (await editor.prompt(session, "make it 2")).stop_reason == "end_turn"
        assert [each.status for each in editor.of("tool_call_update")] == ["failed"] * 3
        assert (project / "a.py").read_text() == "x = 1\n"


async def test_always_is_for_its_scope(tmp_path: Path, project: Path) -> None:
    (project / "b.py").write_text("1\n")
    more = [call("edit", path="a.py", old="2", new="3"), call("edit", path="b.py", old="1", new="3")]
    async with start(tmp_path, [FIX, *more, {"text": "done"}]) as editor:
        editor.choose = lambda _: "more"
        session = (await editor.agent.new_session(cwd=str(project), mcp_servers=[])).session_id
        await editor.prompt(session, "go")
        assert len(editor.asked) == 2  # one for each file
        assert (project / "a.py").read_text() == "x = 3\n"


async def test_modes(tmp_path: Path, project: Path) -> None:
    run = call("run", command=f"{sys.executable} -c print(5)")
    steps = [FIX, run, {"text": "one"}, call("edit", path="a.py", old="2", new="3"), run, {"text": "two"}]
    async with start(tmp_path, steps, "--mode", "plan") as editor:
        made = await editor.agent.new_session(cwd=str(project), mcp_servers=[])
        assert made.modes is not None
        assert made.modes.current_mode_id == "plan"
        session = made.session_id
        await editor.prompt(session, "go")
        assert [each.status for each in editor.of("tool_call_update")] == ["failed", "failed"]
        (project / "a.py").write_text("x = 2\n")
        await editor.agent.set_session_mode(session_id=session, mode_id="auto")
        await editor.prompt(session, "go")
        ends = editor.of("tool_call_update")[2:]
        assert [each.status for each in ends] == ["completed", "completed"]
        assert "5" in ends[1].content[0].content.text
        assert editor.asked == []
        with pytest.raises(acp.RequestError, match="not a valid mode"):
            await editor.agent.set_session_mode(session_id=session, mode_id="yolo")
        again = await editor.agent.load_session(session_id=session, cwd=str(project), mcp_servers=[])
        assert again.modes is not None
        assert again.modes.current_mode_id == "auto"


async def test_the_plan_comes_from_crumbs(tmp_path: Path, project: Path) -> None:
    steps = [call("plan", steps=["look", "fix"]), call("step", number=1, state="done"), {"text": "so far"}]
    async with start(tmp_path, steps) as editor:
        session = (await editor.agent.new_session(cwd=str(project), mcp_servers=[])).session_id
        await editor.prompt(session, "fix the thing")
        shown = [[(each.content, each.status) for each in plan.entries] for plan in editor.of("plan")]
        assert shown == [
            [("look", "pending"), ("fix", "pending")],
            [("look", "completed"), ("fix", "pending")],
        ]
    async with dgent.open(f"sqlite:///{tmp_path}/store.db") as u:
        from dgent.cupboard.cupboard import Cupboard

        (trail,) = await Cupboard(u).trails.fetch()
        assert (trail.name, trail.state) == ("fix the thing", "active")


async def test_cancel(tmp_path: Path, project: Path) -> None:
    steps = [{"text": "a very long story " * 20, "pause_s": 0.5}, *({"text": "short"} for _ in range(5))]
    async with start(tmp_path, steps) as editor:
        session = (await editor.agent.new_session(cwd=str(project), mcp_servers=[])).session_id
        task = asyncio.create_task(editor.prompt(session, "tell me"))
        await editor.wait(editor.text)
        with pytest.raises(acp.RequestError, match="cancel it first"):
            await editor.prompt(session, "another")
        await editor.agent.cancel(session_id=session)
        assert (await asyncio.wait_for(task, 30)).stop_reason == "cancelled"
        for _ in range(5):  # at once: the cancel is for the prompt before them alone
            assert (await editor.prompt(session, "again")).stop_reason == "end_turn"
        await editor.agent.cancel(session_id="unknown")


async def test_cancel_while_the_partner_is_asked(tmp_path: Path, project: Path) -> None:
    async with start(tmp_path, [FIX, {"text": "short"}]) as editor:
        editor.choose = lambda _: "never"
        session = (await editor.agent.new_session(cwd=str(project), mcp_servers=[])).session_id
        task = asyncio.create_task(editor.prompt(session, "make it 2"))
        await editor.wait(lambda: editor.asked)
        await editor.agent.cancel(session_id=session)
        assert (await asyncio.wait_for(task, 30)).stop_reason == "cancelled"
        assert (project / "a.py").read_text() == "x = 1\n"


async def test_load_sends_all_and_resume_nothing(tmp_path: Path, project: Path) -> None:
    steps = [FIX, *({"text": f"answer {n}", "thinking": "hm"} for n in range(60))]
    async with start(tmp_path, steps, "--mode", "auto") as editor:
        session = (await editor.agent.new_session(cwd=str(project), mcp_servers=[])).session_id
        other = (await editor.agent.new_session(cwd=str(project), mcp_servers=[])).session_id
        for n in range(60):
            await editor.prompt(session, f"question {n}")
        await editor.prompt(other, "another thread")
    async with start(tmp_path, []) as editor:
        await editor.agent.load_session(session_id=session, cwd=str(project), mcp_servers=[])
        said = [each.content.text for each in editor.of("user_message_chunk")]
        assert said == [f"question {n}" for n in range(60)]
        assert editor.text() == "".join(f"answer {n}" for n in range(60))
        assert editor.text("agent_thought_chunk") == "hm" * 60
        (end,) = editor.of("tool_call_update")
        assert (end.status, end.content[0].old_text) == ("completed", "x = 1\n")
        listed = await editor.agent.list_sessions(cwd=str(project))
        assert {each.session_id for each in listed.sessions} == {session, other}
        editor.updates.clear()
        await editor.agent.resume_session(session_id=session, cwd=str(project), mcp_servers=[])
        await editor.agent.close_session(session_id=session)
        assert {each.session_update for each in editor.updates} <= {"available_commands_update"}
        with pytest.raises(acp.RequestError, match="is not open"):
            await editor.prompt(session, "hello")


async def test_sessions_are_deleted(tmp_path: Path, project: Path) -> None:
    """A deleted session is off the list and cannot be loaded; what was said stays with the agent."""
    async with start(tmp_path, [{"text": "one two three", "pause_s": 0.5, "piece": 8}]) as editor:
        hello = await editor.agent.initialize(protocol_version=1)
        assert hello.agent_capabilities is not None
        assert hello.agent_capabilities.session_capabilities is not None
        assert hello.agent_capabilities.session_capabilities.delete is not None
        made = [(await editor.agent.new_session(cwd=str(project), mcp_servers=[])).session_id for _ in "abc"]
        await editor.prompt(made[0], "hello")
        await editor.delete(made[0])
        editor.updates.clear()
        task = asyncio.create_task(editor.prompt(made[1], "another"))
        await editor.wait(editor.text)
        await editor.delete(made[1])  # ends the answer, whose end must not bring it back
        with contextlib.suppress(acp.RequestError):
            await task
        listed = await editor.agent.list_sessions()
        assert [each.session_id for each in listed.sessions] == [made[2]]
        with pytest.raises(acp.RequestError, match="has no session"):
            await editor.agent.load_session(session_id=made[0], cwd=str(project), mcp_servers=[])
        with pytest.raises(acp.RequestError, match="is not open"):
            await editor.prompt(made[0], "hello")
        for unknown in (made[0], "never", "", "x" * 500, "../x"):
            await editor.delete(unknown)
        with pytest.raises(acp.RequestError):
            await editor.agent._conn.send_request("session/delete", {"sessionId": 5})
        with pytest.raises(acp.RequestError, match="Method not found"):
            await editor.agent.ext_method("anything", {})
    async with dgent.open(f"sqlite:///{tmp_path}/store.db") as u:
        assert len(await Messages(u, "coder").list_batches()) == 2


async def test_files_of_the_editor(tmp_path: Path, project: Path) -> None:
    """Unsaved text is what the agent sees and changes, and the editor writes it."""
    path = str(project / "a.py")
    steps = [call("read", path="a.py"), FIX, {"text": "done"}]
    files = schema.FileSystemCapabilities(read_text_file=True, write_text_file=True)
    async with start(tmp_path, steps, "--mode", "auto", fs=files) as editor:
        editor.buffers[path] = "y = 0\nx = 1\n"
        session = (await editor.agent.new_session(cwd=str(project), mcp_servers=[])).session_id
        await editor.prompt(session, "make it 2")
        assert "y = 0" in editor.of("tool_call_update")[0].content[0].content.text
        assert editor.written == {path: "y = 0\nx = 2\n"}
        await editor.prompt(session, "/undo")
        assert "Took back" in editor.text(), editor.text()
        assert Path(path).read_text() == "y = 0\nx = 1\n"


async def test_terminals_of_the_editor(tmp_path: Path, project: Path) -> None:
    steps = [
        call("run", command=f"{sys.executable} -c print(6*7)"),
        call("run", command=f"{sys.executable} -c 'import time; time.sleep(60)'", timeout=0.3),
        {"text": "done"},
    ]
    async with start(tmp_path, steps, "--mode", "auto", terminal=True) as editor:
        session = (await editor.agent.new_session(cwd=str(project), mcp_servers=[])).session_id
        await editor.prompt(session, "run")
        shown, ended, late_shown, late = editor.of("tool_call_update")
        assert shown.content[0].terminal_id == "t1"
        assert "42" in ended.content[0].content.text
        assert late_shown.content[0].terminal_id == "t2"
        assert late.status == "failed"
        assert editor.released == ["t1", "t2"]


async def test_servers_of_the_editor(tmp_path: Path, project: Path) -> None:
    hostile = Path(__file__).parent.parent / "runtime" / "tool" / "hostile_server.py"
    servers = [
        schema.McpServerStdio(name="my tools!", command=sys.executable, args=[str(hostile), "plain"], env=[]),
        schema.McpServerStdio(name="gone", command="/nonexistent", args=[], env=[]),
        schema.SseMcpServer(name="old", url="http://localhost:1/", headers=[], type="sse"),
    ]
    steps = [call("my-tools__read"), FIX, {"text": "done"}]
    async with start(tmp_path, steps, "--mode", "auto") as editor:
        editor.choose = lambda _: "deny"
        made = await editor.agent.new_session(cwd=str(project), mcp_servers=servers)
        assert (await editor.prompt(made.session_id, "go")).stop_reason == "end_turn"
        end, edit = editor.of("tool_call_update")
        assert "read done" in end.content[0].content.text
        ((asked, _),) = editor.asked  # in this mode only because the turn has read what a server said
        assert "untrusted" in asked.title
        assert edit.status == "failed"
        assert (project / "a.py").read_text() == "x = 1\n"
        thoughts = editor.text("agent_thought_chunk")
        assert "'gone' did not start" in thoughts
        assert "'old' needs a command or a url" in thoughts


async def test_prompts_with_images_and_files(tmp_path: Path, project: Path) -> None:
    async with start(tmp_path, [{"text": "seen"}]) as editor:
        session = (await editor.agent.new_session(cwd=str(project), mcp_servers=[])).session_id
        resource = acp.embedded_text_resource("file:///x.py", "print(1)")
        blocks = [
            acp.text_block("look"),
            acp.image_block("iVBORw0KGgo=", "image/png"),
            acp.resource_block(resource),
            acp.resource_link_block("readme", "file:///README.md"),
        ]
        assert (await editor.agent.prompt(session_id=session, prompt=blocks)).stop_reason == "end_turn"
        for bad in (
            [],
            [acp.text_block(" ")],
            [acp.image_block("?", "image/png")],
            [acp.audio_block("", "a/b")],
        ):
            with pytest.raises(acp.RequestError):
                await editor.agent.prompt(session_id=session, prompt=bad)  # type: ignore[arg-type]
    async with dgent.open(f"sqlite:///{tmp_path}/store.db") as u:
        (batch,) = await Messages(u, "coder").list_batches()
        assert (batch.session, batch.origin) == (session, "acp")
        (first, _) = await (await Messages(u, "coder").get_batch(batch.id)).messages()
        assert [part.type for part in first.parts] == ["text", "image", "text", "text"]
        assert "print(1)" in first.text


async def test_a_model_that_fails_is_an_error_with_its_reason(tmp_path: Path, project: Path) -> None:
    steps = [{"error": "model_refused"}, {"text": "x", "finish": "length"}]
    async with start(tmp_path, steps) as editor:
        session = (await editor.agent.new_session(cwd=str(project), mcp_servers=[])).session_id
        with pytest.raises(acp.RequestError, match="model_refused"):
            await editor.prompt(session, "go")
        assert (await editor.prompt(session, "go")).stop_reason == "max_tokens"
        await editor.prompt(session, "/context")
        assert "instructions" in editor.text()
    async with start(tmp_path, [call("glob", pattern="*")] * 3, "--max-steps", "2") as editor:
        session = (await editor.agent.new_session(cwd=str(project), mcp_servers=[])).session_id
        assert (await editor.prompt(session, "go")).stop_reason == "max_turn_requests"
