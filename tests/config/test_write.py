"""Changing one setting leaves everything else of a file as it was."""

from __future__ import annotations

import os
import stat
import tempfile
import tomllib
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgent.config import settings as config
from dgent.errors import ConfigError, InputError
from tests.config.house import House


@pytest.mark.parametrize(
    ("before", "name", "value", "after"),
    [
        ("", "author", "ann", 'author = "ann"\n'),
        ("# mine\n", "author", "ann", '# mine\nauthor = "ann"\n'),
        ("# mine", "author", "ann", '# mine\nauthor = "ann"\n'),
        ('author = "x"', "color", "never", 'author = "x"\ncolor = "never"\n'),
        ('author="x" # who', "author", "ann", 'author="ann" # who'),
        (
            '  "author"\t=  \'#x\'  # "who" # me\n\n',
            "author",
            "ann",
            '  "author"\t=  "ann"  # "who" # me\n\n',
        ),
        ("strict = true# yes\n", "strict", "off", "strict = false# yes\n"),
        ("[tool]\nauthor = 1\n", "author", "ann", 'author = "ann"\n[tool]\nauthor = 1\n'),
        ("color='auto'\n# t\n[t]\n", "author", "ann", "color='auto'\nauthor = \"ann\"\n# t\n[t]\n"),
        (
            'author = """\ncolor = "x"\n[t]"""# c\n',
            "color",
            "auto",
            'author = """\ncolor = "x"\n[t]"""# c\ncolor = "auto"\n',
        ),
        ('author = """\n#\n"""# c\nx = 1\n', "author", "ann", 'author = "ann"# c\nx = 1\n'),
        ('a = 1\r\nauthor = "x"\r\n', "author", "ann", 'a = 1\r\nauthor = "ann"\r\n'),
        ("a = 1\r\n", "author", "ann", 'a = 1\r\nauthor = "ann"\r\n'),
        ("\ufeff[t]\n", "author", "ann", '\ufeffauthor = "ann"\n[t]\n'),
        ("author = 7\n", "author", 'a"\\b é', 'author = "a\\"\\\\b é"\n'),
        ('# a\nauthor = "x" # b\n# c\n', "author", None, "# a\n# c\n"),
        ("# a\n", "author", None, "# a\n"),
        ("[t]\nauthor = 1\n", "author", None, "[t]\nauthor = 1\n"),
        ("x = nan\n", "author", "ann", 'x = nan\nauthor = "ann"\n'),
        ("x = [\n  1, # a\n]\n", "strict", "yes", "x = [\n  1, # a\n]\nstrict = true\n"),
        ("", "url", "pg://u:${P}@h", 'url = "pg://u:${P}@h"\n'),
        ("", "color", "${C}", 'color = "${C}"\n'),
    ],
)
def test_one_change(tmp_path: Path, before: str, name: str, value: str | None, after: str) -> None:
    path = tmp_path / "config.toml"
    path.write_bytes(before.encode())
    config.write_setting(path, name, value)
    assert path.read_bytes().decode() == after
    assert [each.name for each in tmp_path.iterdir()] == ["config.toml"]


def test_what_is_written_is_read(house: House) -> None:
    for name, value in (("author", "ann"), ("strict", "true"), ("durability", "relaxed"), ("url", "memory:")):
        config.write_setting(house.user_file, name, value)
    settings = house.load()
    assert (settings.author, settings.strict, settings.durability) == ("ann", True, "relaxed")
    assert settings.url == "memory:"
    assert stat.S_IMODE(house.user_file.stat().st_mode) == 0o600
    assert stat.S_IMODE(house.places.config.stat().st_mode) == 0o700


def test_the_file_becomes_private_and_a_link_stays(tmp_path: Path) -> None:
    (tmp_path / "real").write_text('author = "x"\n')
    (tmp_path / "real").chmod(0o644)
    (tmp_path / "link").symlink_to("real")
    config.write_setting(tmp_path / "link", "author", "ann")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == 'author = "ann"\n'
    assert stat.S_IMODE((tmp_path / "real").stat().st_mode) == 0o600


def test_nothing_to_change(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    config.write_setting(path, "author", None)
    assert not path.exists()
    path.write_text("author='ann'\n")
    was = path.stat().st_ino
    config.write_setting(path, "author", "ann")
    config.write_setting(path, "color", None)
    assert (path.stat().st_ino, path.read_text()) == (was, "author='ann'\n")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("autor", "x"), ("", "x"), ("a.b", "x"), ("author", ""), ("author", "a\nb"), ("author", "\ud800")),
        *(("color", "blue"), ("strict", "perhaps"), ("constellation", "../x"), ("url", "hidden")),
        *(("durability", "FULL"), ("url", "${A}\0")),
    ],
)
def test_what_is_refused(tmp_path: Path, name: str, value: str) -> None:
    path = tmp_path / "config.toml"
    with pytest.raises(InputError) as refused:
        config.write_setting(path, name, value)
    assert "hidden" not in str(refused.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "text",
    [
        "author = \n",
        "author.x = 1\n",
        "[author]\n",
        '"\\u0061uthor" = "x"\n',
        "author = {a = 1}\nauthor.b = 1\n",
    ],
)
def test_files_that_are_left_alone(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.toml"
    path.write_text(text)
    with pytest.raises(ConfigError):
        config.write_setting(path, "author", "ann")
    assert path.read_text() == text
    assert [each.name for each in tmp_path.iterdir()] == ["config.toml"]


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    for wrong in (tmp_path / "file" / "config.toml", tmp_path / "folder"):
        with pytest.raises(ConfigError):
            config.write_setting(wrong, "author", "ann")
    assert sorted(os.listdir(tmp_path)) == ["file", "folder"]


TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20)
FILLER = st.one_of(
    st.just(""),
    TEXT.map(lambda text: f"# {text}"),
    st.sampled_from(["#", "   ", "\t# url = 'x'", "# [table]"]),
)
ODD = st.sampled_from(
    [
        "n = [\n  1, # one\n  'url = 2',\n]",
        'm = """\nauthor = "x"\n[table]\n# no comment\n"""',
        "l = '''\ncolor = 1'''",
        "i = {url = 1, author = '#'} # c",
        "d.url = 1",
        "f = nan",
    ]
)
VALUES = {
    "url": st.sampled_from(["memory:", "sqlite:///x#y.db", "pg://u:${P}@h"]),
    "constellation": st.from_regex(r"[a-z0-9]{3,9}", fullmatch=True).map(lambda name: f"x{name}"),
    "author": TEXT,
    "durability": st.sampled_from(["full", "relaxed"]),
    "color": st.sampled_from(["auto", "always", "never"]),
    "pager": st.sampled_from(["auto", "always", "never"]),
    "strict": st.sampled_from(["true", "false"]),
}


class Piece(NamedTuple):
    """Some lines of a file: a setting's start and its comment, if it is one, with any value between."""

    name: str
    start: str
    value: str
    end: str

    @property
    def text(self) -> str:
        return self.start + self.value + self.end


@st.composite
def files(draw: st.DrawFn) -> list[Piece]:
    """A valid settings file in any layout."""
    newline = draw(st.sampled_from(["\n", "\r\n"]))
    pieces = [Piece("", each, "", "\n") for each in draw(st.lists(ODD, unique=True, max_size=3))]
    for name in draw(st.lists(st.sampled_from(list(VALUES)), unique=True)):
        key = draw(st.sampled_from([name, f'"{name}"', f"  '{name}'"])) + draw(
            st.sampled_from(["=", "\t=  "])
        )
        value = draw(st.sampled_from(["'#'", '"a # \\" b"', "true", "12", "'''a\n#'b'''", "[1, # x\n2]"]))
        pieces.append(Piece(name, key, value, draw(st.sampled_from(["\n", " \n", "  # why\n", "#'\n"]))))
    pieces += [Piece("", each, "", "\n") for each in draw(st.lists(FILLER, max_size=6))]
    pieces = draw(st.permutations(pieces))
    if draw(st.booleans()):
        tables = ["# t", "[table]", "url = 1", 'author = "x"', draw(FILLER), "[[list]]", "color = 1"]
        pieces += [Piece("", each, "", "\n") for each in tables]
    if draw(st.booleans()):
        pieces.insert(0, Piece("", "\ufeff", "", ""))
    return [Piece(*(part.replace("\n", newline) for part in each)) for each in pieces]


@given(files(), st.sampled_from(list(VALUES)), st.booleans(), st.data())
def test_any_file_and_any_key(pieces: list[Piece], name: str, cut: bool, data: st.DataObject) -> None:
    value = data.draw(st.none() | VALUES[name])
    text = "".join(piece.text for piece in pieces)
    if cut:
        text = text.rstrip("\r\n")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.toml"
        path.write_bytes(text.encode())
        config.write_setting(path, name, value)
        written = path.read_bytes().decode()
    before, after = (tomllib.loads(each.removeprefix("\ufeff")) for each in (text, written))
    entry = value == "true" if name == "strict" and value else value
    assert after.get(name) == entry
    rest = [repr({key: each for key, each in table.items() if key != name}) for table in (before, after)]
    assert rest[0] == rest[1]
    if before.get(name) == entry:
        assert written == text
        return
    # Byte for byte: the same pieces, but for the one that changed.
    literal = str(entry).lower()
    if name != "strict":
        literal = '"' + str(value).replace("\\", "\\\\").replace('"', '\\"') + '"'
    wanted = [each for each in pieces if each.name != name or value is not None]
    wanted = [each._replace(value=literal) if each.name == name else each for each in wanted]
    whole = "".join(piece.text for piece in wanted)
    if name in before:
        assert written.rstrip("\r\n") == whole.rstrip("\r\n")
        assert cut or written == whole
    else:
        line = f"{name} = {literal}"
        at = written.index(line)
        without = written[:at] + written[at + len(line) :].removeprefix("\r").removeprefix("\n")
        assert without.rstrip("\r\n") == text.rstrip("\r\n")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", '[storage.blob]\nurl = "files:/b"\n'),
        ("author = 'me' # keep\n", "author = 'me' # keep\n\n[storage.blob]\nurl = \"files:/b\"\n"),
        (
            '[storage.blob] # here\nurl = "files:/a"  # old\n[other]\nx = 1\n',
            '[storage.blob] # here\nurl = "files:/b"  # old\n[other]\nx = 1\n',
        ),
        (
            "[storage.blob]\n\n[storage.telemetry]\nkeep_days = 3\n",
            '[storage.blob]\nurl = "files:/b"\n\n[storage.telemetry]\nkeep_days = 3\n',
        ),
        ('storage.blob.url = "files:/a"\n', None),
        ('[storage]\nblob = {url = "files:/a"}\n', None),
        ("storage = 3\n", None),
    ],
)
def test_a_key_of_a_table_is_set_where_it_is(tmp_path: Path, before: str, after: str | None) -> None:
    """Or in a new table at the end; one that is written in another way is left to an editor."""
    path = tmp_path / "config.toml"
    path.write_text(before)
    if after is None:
        with pytest.raises(ConfigError, match="only an editor"):
            config.write_setting(path, "storage.blob.url", "files:/b")
        assert path.read_text() == before
        return
    config.write_setting(path, "storage.blob.url", "files:/b")
    assert path.read_text() == after
    config.write_setting(path, "storage.telemetry.keep_days", "30")
    table = tomllib.loads(path.read_text())["storage"]
    assert table["blob"]["url"] == "files:/b" and table["telemetry"]["keep_days"] == 30
    config.write_setting(path, "storage.blob.url", None)
    assert "url" not in tomllib.loads(path.read_text())["storage"].get("blob", {})
