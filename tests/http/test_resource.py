"""The addresses that people expect: records with ETags, blocks, work, the log, whole stores."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import dgent
from dgent.doors.http.route import ROUTES, Match, Router
from dgent.verbs import registry
from dgent.verbs.field import VerbField, fields_of
from tests.http.client import Client, serve_universe, token_for


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    async with dgent.open(f"sqlite:///{tmp_path}/store.db") as u:
        yield Client(await serve_universe(u), await token_for(u))


def test_every_route_names_a_verb_and_its_fields() -> None:
    router = Router()
    for route in ROUTES:
        verb = registry.find(route.verb)
        known = {field.name for field in fields_of(verb, VerbField)}
        inside = {each[1:-1] for each in route.path.split("/") if each[:1] == "{"}
        # A record's address has its schema, which the verbs of one record need not be told.
        assert inside - known <= ({"schema"} if route.path.startswith("/v1/data/") else set()), route
        assert route.preset.keys() <= known
        found = router.find(route.method, route.path)
        assert isinstance(found, Match) and found.route is route


async def test_a_record_has_an_address_and_an_etag(client: Client) -> None:
    made = await client.put("/v1/data/note/a", {"data": {"n": 1}}, if_none_match="*")
    assert made.status == 200 and made.headers["etag"] == '"1"'
    again = await client.put("/v1/data/note/a", {"data": {"n": 2}}, if_none_match="*")
    assert again.status == 412 and again.json["code"] == "version_conflict"
    assert (await client.put("/v1/data/note/a", {"data": {"n": 2}}, if_match='"9"')).status == 412
    changed = await client.put("/v1/data/note/a", {"data": {"n": 2}}, if_match='"1"')
    assert changed.headers["etag"] == '"2"'
    found = await client.get("/v1/data/note/a")
    assert found.data["data"] == {"n": 2} and found.headers["etag"] == '"2"'
    assert (await client.get("/v1/data/note/a", if_none_match='"2"')).status == 304
    assert (await client.get("/v1/data/note/a?as_of=" + str(changed.data["seq"] - 1))).data["data"] == {
        "n": 1
    }
    head = await client.send("HEAD", "/v1/data/note/a")
    assert head.status == 200 and head.headers["etag"] == '"2"'
    assert (await client.delete("/v1/data/note/a", if_match='"1"')).status == 412
    assert (await client.delete("/v1/data/note/a", if_match='"2"')).status == 200
    gone = await client.get("/v1/data/note/a")
    assert gone.status == 404 and gone.json["ok"] is False
    versions = (await client.get("/v1/data/note/a/history")).data["items"]
    assert [each["op"] for each in versions] == ["delete", "put", "put"]


async def test_an_address_means_one_record(client: Client) -> None:
    await client.put("/v1/data/note/abcdef", {"data": {"n": 1}})
    assert (await client.get("/v1/data/note/abcd")).status == 404, "the beginning of an id is no address"
    assert (await client.get("/v1/data/other/abcdef")).status == 404, "it is of another schema"
    assert (await client.get("/v1/data/-/abcdef")).status == 404
    assert (await client.delete("/v1/data/other/abcdef")).status == 404
    assert (await client.put("/v1/data/other/abcdef", {"data": {}})).status == 404, "a put moves nothing"
    for part in ("history", "diff", "chain"):
        assert (await client.get(f"/v1/data/other/abcdef/{part}")).status == 404
    assert (await client.get("/v1/data/note/abcdef")).data["rev"] == 1
    await client.put("/v1/data/-/plain", {"data": {"n": 1}})
    assert (await client.get("/v1/data/-/plain")).data["schema"] is None


async def test_ids_and_labels_may_have_slashes(client: Client) -> None:
    await client.put("/v1/data/note/a%2Fhistory", {"data": {"n": 1}})
    assert (await client.get("/v1/data/note/a%2Fhistory")).data["id"] == "a/history"
    made = await client.post("/v1/blocks", {"label": "projects/x/history", "text": "one"})
    assert made.status == 200, made
    assert (await client.get("/v1/blocks/projects%2Fx%2Fhistory")).data["text"] == "one"
    assert (await client.get("/v1/blocks/projects%2Fx%2Fhistory/history")).data["items"]


async def test_records_are_made_found_and_counted(client: Client) -> None:
    for n in range(3):
        made = await client.post("/v1/data/note", {"data": {"n": n}, "tag": ["t"]})
        assert made.status == 201 and made.data["author"] == "scout"
    assert len((await client.get("/v1/data/note?where=n%3E%3D1&limit=5")).data["items"]) == 2
    page = (await client.get("/v1/data?limit=2&tag=t")).data
    rest = (await client.get(f"/v1/data?limit=2&tag=t&cursor={page['cursor']}")).data
    assert len(page["items"]) == 2 and len(rest["items"]) == 1
    assert (await client.post("/v1/query", {"schema": "note", "where": ["n=2"]})).data["items"][0][
        "data"
    ] == {"n": 2}
    assert (await client.post("/v1/count", {"schema": "note"})).data["count"] == 3
    assert (await client.get("/v1/schemas")).data["items"]


async def test_a_key_writes_once(client: Client) -> None:
    first = await client.post("/v1/data/note", {"data": {"n": 1}}, idempotency_key="k1")
    again = await client.post("/v1/data/note", {"data": {"n": 1}}, idempotency_key="k1")
    assert first.data["id"] == again.data["id"] and first.data["seq"] == again.data["seq"]
    other = await client.post("/v1/data/note", {"data": {"n": 2}}, idempotency_key="k1")
    assert other.status == 409 and other.json["code"] == "key_reused"
    assert (await client.post("/v1/count", {"schema": "note"})).data["count"] == 1
    refused = await client.post("/v1/crumbs", {"text": "x"}, idempotency_key="k2")
    assert refused.status == 400 and "Idempotency-Key" in refused.json["error"]


async def test_a_block_is_read_written_and_rolled_back(client: Client) -> None:
    await client.post("/v1/blocks", {"label": "notes", "text": "one\n"})
    await client.put("/v1/blocks/notes", {"text": "two\n", "message": "better"})
    assert (await client.get("/v1/blocks/notes")).data["text"] == "two\n"
    patched = await client.patch("/v1/blocks/notes", {"edits": [{"old": "two", "new": "three"}]})
    assert patched.status == 200, patched
    assert (await client.get("/v1/blocks/notes/diff?before=1")).status == 200
    versions = (await client.get("/v1/blocks/notes/history")).data["items"]
    assert len(versions) == 3
    late = await client.put("/v1/blocks/notes", {"text": "x", "expect": 1})
    assert late.status == 409
    late = await client.put("/v1/blocks/notes", {"text": "x"}, if_match='"1"')
    assert late.status == 412
    assert (await client.get("/v1/blocks/notes")).headers["etag"] == '"3"'
    assert (await client.get("/v1/blocks/notes", if_none_match='"3"')).status == 304
    rolled = await client.post("/v1/blocks/notes/rollback", {"version": "1"})
    assert rolled.status == 200, rolled
    assert (await client.get("/v1/blocks/notes")).data["text"] == "one\n"
    assert "one" in str((await client.get("/v1/prompt")).data)
    assert (await client.delete("/v1/blocks/notes")).status == 200
    assert (await client.get("/v1/blocks/notes")).status == 404


async def test_work_is_added_taken_and_done(client: Client) -> None:
    added = (await client.post("/v1/crumbs", {"text": "Fix crash", "priority": "high"})).data["items"][0]
    short = added["short_id"]
    assert [each["short_id"] for each in (await client.get("/v1/ready")).data["items"]] == [short]
    taken = (await client.post("/v1/take")).data
    assert taken["holder"] == "scout"
    await client.post(f"/v1/crumbs/{short}/comments", {"text": "looking"})
    await client.patch(f"/v1/crumbs/{short}", {"name": "Fix the crash"})
    assert (await client.post(f"/v1/crumbs/{short}/done", {"message": "fixed"})).status == 200
    found = (await client.get(f"/v1/crumbs/{short}")).data
    assert found["state"] == "pebble" and found["name"] == "Fix the crash"
    assert (await client.get("/v1/board")).status == 200
    trail = (await client.post("/v1/trails", {"name": "try it"})).data
    ended = await client.post(f"/v1/trails/{trail['id']}/abandon", {"lesson": "do not"})
    assert ended.status == 200, ended
    assert "do not" in str((await client.get("/v1/lessons")).data)


async def test_the_log_and_undo(client: Client) -> None:
    await client.put("/v1/data/note/a", {"data": {"n": 1}})
    await client.put("/v1/data/note/a", {"data": {"n": 2}})
    entries = (await client.get("/v1/log?limit=2")).data["items"]
    assert [each["author"] for each in entries] == ["scout", "scout"]
    assert (await client.get(f"/v1/log/{entries[0]['seq']}")).data["items"]
    assert (await client.post("/v1/undo")).status == 200
    assert (await client.get("/v1/data/note/a")).data["data"] == {"n": 1}
    assert (await client.post("/v1/redo")).status == 200
    assert (await client.get("/v1/data/note/a")).data["data"] == {"n": 2}


async def test_search_over_all(client: Client) -> None:
    await client.post("/v1/data", {"data": {"text": "the harbour at dawn"}, "schema": "agent.note"})
    hits = (await client.get("/v1/search?words=harbour&explain=true")).data["items"]
    assert len(hits) == 1 and hits[0]["marks"]


async def test_records_travel_as_lines(client: Client, tmp_path: Path) -> None:
    for n in range(3):
        await client.put(f"/v1/data/note/{n}", {"data": {"n": n}})
    lines = await client.get("/v1/export?schema=note")
    assert lines.headers["content-type"] == "application/x-ndjson"
    assert lines.body.count(b"\n") == 5
    async with dgent.open(f"sqlite:///{tmp_path}/other.db") as other:
        there = Client(await serve_universe(other), await token_for(other))
        done = await there.send("POST", "/v1/import", lines.body)
        assert done.status == 200, done
        assert await other.count(schema="note") == 3
        damaged = await there.send("POST", "/v1/import?existing=skip", lines.body[:-40])
        assert damaged.status == 400 and damaged.json["code"] == "corrupt"
        assert (await there.send("POST", "/v1/import", b"")).status == 400


async def test_what_is_no_address(client: Client) -> None:
    assert (await client.get("/v1/nothing")).status == 404
    assert (await client.get("/v1")).status == 404
    assert (await client.post("/v1/verbs/data.wat")).status == 404
    wrong = await client.post("/v1/ready")
    assert wrong.status == 405 and wrong.headers["allow"] == "GET"
    assert (await client.get("/v1/data/note?limit=no")).status == 400
    assert (await client.get("/v1/data/note?limit=1000000000")).status == 400
    assert (await client.get("/v1/data/note?limit=-1")).status == 400
    assert (await client.get("/v1/data/note?wat=1")).status == 400
    assert (await client.get("/v1/data/note?limit=1&limit=2")).status == 400
    assert (await client.put("/v1/data/note/a", {"data": {}}, if_match="abc")).status == 400
    assert (await client.post("/v1/take", None, if_match='"1"')).status == 400


async def test_several_stores_on_one_server(tmp_path: Path) -> None:
    async with dgent.open(f"sqlite:///{tmp_path}/a.db") as a, dgent.open(f"sqlite:///{tmp_path}/b.db") as b:
        server = await serve_universe(a, ("second", b))
        of_a, of_b = await token_for(a), await token_for(b)
        await Client(server, of_b, "/second").put("/v1/data/note/x", {"data": {"n": 2}})
        assert (await Client(server, of_b, "/second").get("/v1/data/note/x")).data["data"] == {"n": 2}
        assert (await Client(server, of_a).get("/v1/data/note/x")).status == 404
        listed = (await Client(server, of_a, "/main").get("/v1/constellations")).data
        assert listed["items"] == [{"name": "main"}]
        for token, prefix in ((of_a, "/second"), (of_b, ""), (of_b, "/third")):
            refused = await Client(server, token, prefix).get("/v1/status")
            assert refused.status == 401, "a token is for its own store"
