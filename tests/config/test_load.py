"""Which setting counts, what happens to wrong ones, and that no secret is shown."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dgent.config import file
from dgent.config import settings as config
from dgent.config.secret import mask
from dgent.errors import ConfigError, InputError
from tests.config.house import House


def test_defaults(house: House) -> None:
    settings = house.load()
    assert settings.url == house.store("default")
    assert settings.constellation == "default"
    assert settings.folder == house.places.data / "constellations" / "default"
    assert (settings.author, settings.durability, settings.strict) == ("system", "full", False)
    assert (settings.color, settings.pager) == ("auto", "auto")
    assert settings.places == house.places
    assert settings.user == house.user_file
    assert settings.project is None
    assert settings.agents == {}
    assert settings.warnings == ()
    assert {each.source for each in settings.list_settings()} == {"default"}
    assert [each.name for each in settings.list_settings()] == list(config.KEYS) == list(settings.values)


def test_the_first_level_that_has_it_counts(house: House) -> None:
    def now(**given: Any) -> tuple[Any, str]:
        setting = house.load(**given).values["constellation"]
        return setting.value, setting.source

    assert now() == ("default", "default")
    house.user('constellation = "user"\n')
    assert now() == ("user", f"user {house.user_file}")
    house.ours('constellation = "project"\n')
    assert now() == ("project", f"project {house.project_file}")
    assert now(DGENT_CONSTELLATION="env") == ("env", "environment DGENT_CONSTELLATION")
    assert now(DGENT_CONSTELLATION="env", constellation="arg") == ("arg", "argument")
    assert now(DGENT_CONSTELLATION="") == ("project", f"project {house.project_file}"), "empty is not set"


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("author", "ann", "ann"),
        ("durability", "relaxed", "relaxed"),
        ("color", "never", "never"),
        ("pager", "always", "always"),
        ("strict", "1", True),
        ("strict", "OFF", False),
    ],
)
def test_every_key_has_a_variable(house: House, name: str, text: str, value: Any) -> None:
    settings = house.load(**{f"DGENT_{name.upper()}": text})
    assert getattr(settings, name) == value
    assert settings.values[name].source == f"environment DGENT_{name.upper()}"


def test_files_set_every_key(house: House) -> None:
    house.user(
        'url = "memory:"\nauthor = "ann"\ndurability = "relaxed"\n'
        'color = "never"\npager = "never"\nstrict = true\n'
    )
    settings = house.load()
    assert (settings.url, settings.constellation, settings.folder) == ("memory:", None, None)
    assert (settings.author, settings.durability, settings.color) == ("ann", "relaxed", "never")
    assert (settings.pager, settings.strict) == ("never", True)


def test_no_color(house: House) -> None:
    house.user('color = "always"\n')
    assert house.load(NO_COLOR="1").values["color"][1:3] == ("never", "environment NO_COLOR")
    assert house.load(NO_COLOR="1", DGENT_COLOR="always").color == "always"
    assert house.load(NO_COLOR="").color == "always"


# -- url and constellation ----------------------------------------------------------------


def test_a_place_said_higher_beats_the_other_way_of_saying_it(house: House) -> None:
    house.user('url = "sqlite:////far/user.db"\n')
    assert house.load().url == "sqlite:////far/user.db"
    assert house.load(constellation="work").url == house.store("work")
    assert house.load(DGENT_CONSTELLATION="work").url == house.store("work")
    house.user('constellation = "mine"\n')
    assert house.load(url="memory:").url == "memory:"
    settings = house.load(DGENT_URL="memory:")
    assert (settings.url, settings.constellation) == ("memory:", None)
    assert settings.warnings == ()


def test_both_in_one_place(house: House) -> None:
    with pytest.raises(InputError, match="cannot be combined"):
        house.load(url="memory:", constellation="a")
    settings = house.load(DGENT_URL="memory:", DGENT_CONSTELLATION="a")
    assert (settings.url, settings.constellation, len(settings.warnings)) == ("memory:", None, 1)
    house.user('constellation = "a"\nurl = "memory:"\n')
    settings = house.load()
    assert settings.url == "memory:"
    assert str(house.user_file) in settings.warnings[0]


def test_a_url_that_is_a_constellation(house: House) -> None:
    settings = house.load(url=house.store("work"))
    assert settings.constellation == "work"
    assert settings.folder == house.places.data / "constellations" / "work"
    assert house.load(url=house.store("Work")).constellation is None
    assert house.load(url="sqlite:///membrane.db").constellation is None


@pytest.mark.parametrize("wrong", ["", "nonsense", "a\nb:", "sqlite:///a\0b", 7])
def test_a_url_that_is_none(house: House, wrong: Any) -> None:
    with pytest.raises(InputError, match="url"):
        house.load(url=wrong)


def test_places_in_the_environment_are_never_passed_over(house: House) -> None:
    for variables in ({"DGENT_CONSTELLATION": "../x"}, {"DGENT_URL": "nonsense"}):
        with pytest.raises(ConfigError, match=next(iter(variables))):
            house.load(**variables)


def test_relative_paths_in_files(house: House) -> None:
    house.user('url = "sqlite:///x.db"\n')
    assert house.load().url == f"sqlite:///{house.places.config}/x.db"
    house.user('url = "jsonl:notes"\n')
    assert house.load().url == f"jsonl:{house.places.config}/notes"
    house.ours('url = "sqlite:///.dgent/x.db"\n')
    below = house.project / "src"
    below.mkdir()
    assert house.load(cwd=below).url == f"sqlite:///{house.project}/.dgent/x.db"
    assert house.load(DGENT_URL="sqlite:///x.db").url == "sqlite:///x.db", "as every URL that a caller gives"


# -- projects -----------------------------------------------------------------------------


def test_the_nearest_project_counts(house: House) -> None:
    house.ours('author = "outer"\n')
    inner = house.project / "a" / "b"
    inner.mkdir(parents=True)
    assert house.load(cwd=inner).project == house.project
    (house.project / "a" / ".dgent").mkdir()
    settings = house.load(cwd=inner)
    assert (settings.project, settings.author) == (house.project / "a", "system")
    (inner / ".dgent").touch()
    assert house.load(cwd=inner).project == house.project / "a", "a file is not a project"


def test_home_is_no_project(house: House, tmp_path: Path) -> None:
    for folder in (house.home, house.home.parent):
        (folder / ".dgent").mkdir()
        (folder / ".dgent" / "config.toml").write_text('author = "trap"\n')
    for cwd in (house.project, house.home, house.home.parent):
        assert house.load(cwd=cwd).project is None
    beside = tmp_path / "srv" / "x"
    (tmp_path / "srv" / ".dgent").mkdir(parents=True)
    beside.mkdir()
    assert house.load(cwd=beside).project == tmp_path / "srv"


def test_home_behind_a_link(house: House, tmp_path: Path) -> None:
    (house.home / ".dgent").mkdir()
    (tmp_path / "link").symlink_to(house.home)
    assert house.load(cwd=house.project, HOME=str(tmp_path / "link")).project is None


def test_a_folder_that_is_gone(house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    try:
        assert config.load(environment=house.environment).project is None
    finally:
        os.chdir(tmp_path)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://h/db",
        "sqlite:////etc/x.db",
        "sqlite:///../x.db",
        "sqlite:///link/x.db",
        "jsonl:../x",
        "sqlite://",
        "memory:x",
    ],
)
def test_a_project_names_only_places_inside(house: House, url: str) -> None:
    (house.project / "link").symlink_to(house.home)
    house.ours(f'url = "{url}"\n')
    settings = house.load(SECRET="postgresql://u:hidden@h/db")
    assert settings.url == house.store("default")
    assert "leads out of the project" in settings.warnings[0]
    assert "hidden" not in settings.warnings[0]


@pytest.mark.parametrize("name", list(config.KEYS))
@pytest.mark.parametrize("written", ["${SECRET}", "x${SECRET}", "${NOBODY}"])
def test_a_project_never_reads_the_environment(house: House, name: str, written: str) -> None:
    house.ours(f'{name} = "{written}"\n')
    settings = house.load(SECRET="hidden")
    assert settings.values[name].source == "default" and "hidden" not in repr(settings.values)
    assert "environment" in settings.warnings[0] or name == "strict"
    assert all("hidden" not in each for each in settings.warnings)
    house.ours('author = "$${SECRET}"\n')
    assert house.load(SECRET="hidden").author == "${SECRET}"


@pytest.mark.parametrize("name", ["config.toml", "catalog.json", ".dgent"])
def test_links_in_a_project_are_not_followed(house: House, tmp_path: Path, name: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "config.toml").write_text('author = "mallory"\n')
    (elsewhere / "catalog.json").write_text('{"agents": {"mallory": {}}}')
    folder = house.project / ".dgent"
    if name == ".dgent":
        folder.symlink_to(elsewhere)
    else:
        folder.mkdir()
        (folder / name).symlink_to(elsewhere / name)
    settings = house.load()
    assert (settings.author, settings.agents) == ("system", {})
    assert "is not followed" in settings.warnings[0]
    if name != "catalog.json":
        with pytest.raises(ConfigError, match="not followed"):
            config.write_setting(folder / "config.toml", "author", "ann", project=house.project)
    assert (elsewhere / "config.toml").read_text() == 'author = "mallory"\n'


def test_no_variable_is_written_into_a_project(house: House) -> None:
    with pytest.raises(InputError, match="environment"):
        config.write_setting(house.project_file, "author", "${USER}", project=house.project)
    assert not house.project_file.exists()


def test_what_a_project_may_name(house: House) -> None:
    for url in ("memory:", f"sqlite:///{house.project}/x.db", "sqlite:///a/../x.db"):
        house.ours(f'url = "{url}"\n')
        settings = house.load()
        assert settings.warnings == ()
        assert settings.values["url"].source.startswith("project ")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives folders away")
def test_a_project_of_another_user(house: House) -> None:
    house.ours('author = "mallory"\n')
    os.chown(house.project / ".dgent", 12345, 12345)
    settings = house.load()
    assert (settings.project, settings.author) == (None, "system")
    assert "another user" in settings.warnings[0]


def test_the_agents_of_a_project(house: House) -> None:
    house.ours('{"agents": {"scout": {"model": "small"}, "odd": 7}, "more": 1}', "catalog.json")
    settings = house.load()
    assert settings.agents == {"scout": {"model": "small"}}
    assert "'odd'" in settings.warnings[0]
    assert house.load(cwd=house.home).agents == {}


@pytest.mark.parametrize(
    "text", ['{"agents": \n}', "[]", '{"agents": []}', "\n\xff", "[" * 100_000, "9" * 5000]
)
def test_a_broken_catalog(house: House, text: str) -> None:
    path = house.ours(text.encode("latin-1"), "catalog.json")
    settings = house.load()
    assert settings.agents == {}
    assert str(path) in settings.warnings[0]
    with pytest.raises(ConfigError):
        house.load(strict=True)


# -- files that are wrong -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('author = "ann"\n\nurl = sqlite\n', 3),
        ('author = "ann"\nurl = "open\n', 2),
        ('author = "ann"\nauthor = "bob"\n', 2),
        ('author = "ann"\nurl = """\n\nnever closed\n', 4),
        (b'author = "ann"\n\nurl = "\xff"\n', 3),
        ("a = " + "[" * 100_000, 1),
        ("a = " + "9" * 5000, 1),
    ],
)
def test_a_file_that_does_not_parse(house: House, text: str | bytes, line: int) -> None:
    house.user(text)
    settings = house.load()
    assert settings.author == "system"
    assert len(settings.warnings) == 1
    assert settings.warnings[0].startswith(f"{house.user_file}, line {line}: ")
    for strictly in ({"strict": True}, {"DGENT_STRICT": "1"}):
        with pytest.raises(ConfigError, match=f"line {line}"):
            house.load(**strictly)
    house.ours("strict = true\n")
    with pytest.raises(ConfigError, match=f"line {line}"):
        house.load()
    assert house.load(strict=False).warnings


@contextmanager
def nobody() -> Iterator[None]:
    """Inside, files that nobody may read cannot be read: not by root either."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


def test_a_file_that_cannot_be_read(house: House) -> None:
    house.user('author = "ann"\n').chmod(0)
    with nobody():
        settings = house.load()
    assert settings.author == "system"
    assert any(str(house.user_file) in each for each in settings.warnings)


def test_what_is_not_a_file(house: House) -> None:
    house.user_file.mkdir(parents=True)
    (house.project / ".dgent").mkdir()
    os.mkfifo(house.project_file)
    settings = house.load()
    assert [each.split(";")[0] for each in settings.warnings] == [
        f"{house.project_file} is not a file",
        f"{house.user_file} is not a file",
    ]


def test_a_file_without_end(house: House) -> None:
    house.user("#" * (file.MAX_BYTES + 1))
    assert "more than" in house.load().warnings[0]


def test_an_empty_file_and_one_with_a_mark(house: House) -> None:
    house.user("")
    assert house.load().warnings == ()
    house.user('\ufeffauthor = "ann"\r\n')
    assert house.load().author == "ann"


def test_unknown_keys(house: House) -> None:
    path = house.user('consteltion = "x"\nzzz = 1\nURL = "memory:"\n[tool]\na = 1\n"x://u:hidden@h" = 1\n')
    warnings = house.load().warnings
    assert warnings[0] == f"unknown key 'consteltion' in {path}, did you mean 'constellation'?"
    assert warnings[1] == f"unknown key 'zzz' in {path}, known are {', '.join(config.KEYS)}"
    assert "did you mean 'url'?" in warnings[2]
    assert "'tool'" in warnings[3]
    with pytest.raises(ConfigError, match="did you mean 'constellation'"):
        house.load(strict=True)


@pytest.mark.parametrize(
    "line",
    [
        *("author = 1", 'author = ""', 'author = "a\\u0000"', f'author = "{"x" * 257}"', "author = {a = 1}"),
        *("url = true", 'url = "hidden"', 'constellation = "../hidden"', 'constellation = "Hidden"'),
        *('durability = "hidden"', "color = true", 'color = "hidden"', 'pager = "less"'),
        *('strict = "yes"', "strict = 1", 'author = "${}"', 'author = "${hidden"', 'author = "${a-b}"'),
    ],
)
def test_wrong_values(house: House, line: str) -> None:
    usual = house.load().list_settings()
    path = house.user(line + "\n")
    settings = house.load()
    assert settings.list_settings() == usual
    name = line.split(" ")[0]
    assert settings.warnings[0].startswith(f"{name} in {path} ")
    assert "hidden" not in settings.warnings[0].lower()
    if name != "strict":  # said by the argument, it is not looked at below
        with pytest.raises(ConfigError):
            house.load(strict=True)


def test_a_wrong_value_is_as_if_it_were_not_there(house: House) -> None:
    house.user('author = "ann"\n')
    house.ours("author = 7\n")
    settings = house.load()
    assert (settings.author, len(settings.warnings)) == ("ann", 1)


def test_wrong_variables(house: House) -> None:
    settings = house.load(DGENT_COLOR="blue", DGENT_STRICT="perhaps", DGENT_AUTHOR="\udcff")
    assert (settings.color, settings.strict, settings.author) == ("auto", False, "system")
    assert [each.split(" ")[0] for each in settings.warnings] == [
        "DGENT_AUTHOR",
        "DGENT_COLOR",
        "DGENT_STRICT",
    ]


def test_what_is_decided_above_is_not_looked_at(house: House) -> None:
    house.user('url = "postgresql://u:${NOT_SET}@h/db"\nauthor = 7\n')
    for given in ({"url": "memory:"}, {"constellation": "a"}, {"DGENT_URL": "memory:"}):
        assert house.load(strict=True, DGENT_AUTHOR="ann", **given).warnings == ()


def test_another_user_file(house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    house.user('author = "ann"\n')
    other = tmp_path / "other.toml"
    other.write_text('author = "bob"\nurl = "sqlite:///x.db"\n')
    settings = house.load(DGENT_CONFIG=str(other))
    assert settings.values["author"][1:3] == ("bob", f"user {other}")
    assert (settings.url, settings.user) == (f"sqlite:///{tmp_path}/x.db", other)
    assert house.load(config=other).author == house.load(config=str(other)).author == "bob"
    assert house.load(DGENT_CONFIG="other.toml", cwd=tmp_path).author == "bob"
    monkeypatch.chdir(tmp_path)
    assert config.load(config="other.toml", environment=house.environment).author == "bob"
    assert house.load(DGENT_CONFIG=os.devnull).author == "system"
    assert house.load(DGENT_CONFIG=os.devnull).warnings == ()


def test_another_user_file_that_is_missing(house: House, tmp_path: Path) -> None:
    house.user('author = "ann"\n')
    settings = house.load(DGENT_CONFIG=str(tmp_path / "missing"))
    assert (settings.author, len(settings.warnings)) == ("system", 1)
    with pytest.raises(ConfigError, match="missing"):
        house.load(config=tmp_path / "missing")


# -- variables and secrets ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${A}", "one"),
        ("x${A}y${B}", "xoney${A}"),
        ("$${A}", "${A}"),
        ("$A $ {A} $$", "$A $ {A} $$"),
        ("$$${A}", "$${A}"),
        ("${E}x", "x"),
    ],
)
def test_variables(house: House, text: str, value: str) -> None:
    house.user(f'author = "{text}"\n')
    assert house.load(A="one", B="${A}", E="").author == value


def test_a_variable_that_is_not_set(house: House) -> None:
    path = house.user('author = "${NOBODY}"\nurl = "postgresql://u:${PASSWORD}@h/db"\n')
    settings = house.load()
    assert (settings.author, settings.url) == ("system", house.store("default"))
    assert (
        settings.warnings[0]
        == f"author in {path} needs the variable NOBODY, which is not set; it is not used"
    )
    assert "PASSWORD" in settings.warnings[1]
    with pytest.raises(ConfigError, match="NOBODY"):
        house.load(DGENT_STRICT="true")


def test_secrets_do_not_show(house: House) -> None:
    house.user('url = "postgresql://u:${PASSWORD}@h/db"\nauthor = "${WHO}"\nconstelation = "x"\n')
    settings = house.load(PASSWORD="hidden", WHO="hidden too")
    assert settings.url == "postgresql://u:hidden@h/db"
    assert settings.author == "hidden too"
    shown = {each.name: each for each in settings.list_settings()}
    assert (shown["url"].value, shown["url"].secret) == ("postgresql://u:***@h/db", True)
    assert (shown["author"].value, shown["author"].secret) == ("${WHO}", True)
    assert shown["color"].secret is False
    for text in (repr(settings), str(settings), repr(settings.values), repr(settings.list_settings())):
        assert "hidden" not in text
    with pytest.raises(ConfigError) as refused:
        house.load(PASSWORD="hidden", WHO="hidden too", strict=True)
    assert "hidden" not in f"{refused.value!r} {refused.value} {refused.value.details}"


def test_a_password_written_out_does_not_show(house: House) -> None:
    for given in ({"url": "pg://u:hidden@h/db"}, {"DGENT_URL": "pg://u:hidden@h/db"}):
        settings = house.load(**given)
        assert settings.url == "pg://u:hidden@h/db"
        assert settings.list_settings()[0].value == "pg://u:***@h/db"
        assert "hidden" not in f"{settings!r} {settings.values}"


def test_a_constellation_from_a_variable(house: House) -> None:
    house.user('constellation = "${WHICH}"\n')
    settings = house.load(WHICH="hidden")
    assert settings.url == house.store("hidden")
    assert "hidden" not in repr(settings)
    assert settings.list_settings()[0].value == house.store("${WHICH}")
    assert "Hidden" not in house.load(WHICH="Hidden").warnings[0]
    house.user('url = "${WHERE}"\n')
    settings = house.load(WHERE=house.store("hidden"))
    assert settings.constellation == "hidden"
    assert "hidden" not in f"{settings!r} {settings.values}"


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("postgresql://u:hidden@h/db", "postgresql://u:***@h/db"),
        ("postgresql://:hidden@h", "postgresql://:***@h"),
        ("postgresql://u:hid@den@h/db", "postgresql://u:***@h/db"),
        ("postgresql://u:hid/den?#@h/db", "postgresql://u:***@h/db"),
        ("postgresql://u:hid den@h/db", "postgresql://u:***@h/db"),
        ("no way to a://u:hidden@h and b://v:hidden@h!", "no way to a://u:***@h and b://v:***@h!"),
        ("pg://h/db?password=hidden&a=1", "pg://h/db?password=***&a=1"),
        ("pg://h/db?a=1&authToken=hidden", "pg://h/db?a=1&authToken=***"),
        ("postgresql://u@h:5432/db", "postgresql://u@h:5432/db"),
        ("sqlite:////home/ann/x@y:z.db", "sqlite:////home/ann/x@y:z.db"),
        ("memory:", "memory:"),
        ("mail ann@h.org: done", "mail ann@h.org: done"),
        ("", ""),
    ],
)
def test_mask(text: str, masked: str) -> None:
    assert mask(text) == masked
    assert mask(masked) == masked


# -- a store that may be away ---------------------------------------------------------------


def test_whether_the_store_may_be_away(house: House) -> None:
    assert (house.load().degrade, house.load().urls) == (False, [house.store("default")])
    assert house.load(DGENT_DEGRADE="yes").degrade is True
    assert house.load(DGENT_DEGRADE="optimistic").degrade == "optimistic"
    wrong = house.load(DGENT_DEGRADE="perhaps")
    assert wrong.degrade is False and "DGENT_DEGRADE" in wrong.warnings[0]
    house.user('stand_in = "sqlite:///copy.db"\noutbox = "out.db"\n')
    settings = house.load()
    assert settings.urls == [house.store("default"), f"sqlite:///{house.places.config}/copy.db"]
    assert settings.outbox == f"{house.places.config}/out.db"


def test_each_store_has_an_outbox_of_its_own(house: House) -> None:
    first, second = house.load(), house.load(constellation="other")
    assert first.outbox != second.outbox
    assert Path(first.outbox).parent == house.places.data / "outbox"
    assert os.stat(house.places.data / "outbox").st_mode & 0o777 == 0o700
    one, two = (house.load(url=f"postgresql://ann:{word}@db/x").outbox for word in ("old", "new"))
    assert one == two, "a changed password does not lose what is pending"


def test_a_project_keeps_its_outbox_inside(house: House) -> None:
    house.ours('outbox = "../../out.db"\nstand_in = "sqlite:////etc/x.db"\n')
    settings = house.load()
    assert len(settings.warnings) == 2 and settings.values["outbox"].value is None
    house.ours('outbox = "sqlite:///inside.db"\n')
    assert house.load().outbox == f"{house.project}/inside.db"


# -- the embedder -------------------------------------------------------------------------


def test_the_embedder_of_the_settings(house: House) -> None:
    assert house.load().embedder == ("none", None, None)
    house.user('embedder = "https://host/v1"\nembedder_model = "small"\nembedder_key = "${KEY}"\n')
    settings = house.load(KEY="sk-hidden")
    assert settings.embedder == ("https://host/v1", "small", "sk-hidden")
    shown = {each.name: each.value for each in settings.list_settings()}
    assert shown["embedder_key"] == "${KEY}" and "sk-hidden" not in repr(settings) + repr(settings.values)
    wrong = house.load(DGENT_EMBEDDER="openai")
    assert wrong.embedder[0] == "https://host/v1" and "DGENT_EMBEDDER must be none" in wrong.warnings[0]


@pytest.mark.parametrize("key", ["sk-hidden", "${KEY}sk-hidden", "a:b@sk-hidden"])
def test_a_key_in_a_file_is_never_shown(house: House, key: str) -> None:
    house.user(f'embedder_key = "{key}"\n')
    settings = house.load(KEY="x", DGENT_EMBEDDER_MODEL="m")
    shown = {each.name: each.value for each in settings.list_settings()}
    assert shown["embedder_key"] == "***" and "sk-hidden" not in repr(settings) + repr(settings.values)


def test_a_project_sends_no_texts_away(house: House) -> None:
    house.user('embedder = "https://mine/v1"\nembedder_model = "small"\nembedder_key = "sk-mine"\n')
    house.ours('embedder = "https://theirs/v1"\nembedder_model = "large"\nembedder_key = "sk-theirs"\n')
    settings = house.load()
    assert settings.embedder == ("https://mine/v1", "small", "sk-mine")
    assert len(settings.warnings) == 3 and "sk-theirs" not in repr(settings.warnings)
    house.ours('embedder = "minilm"\n')
    assert house.load().embedder[0] == "minilm"
    with pytest.raises(InputError, match="your own settings"):
        config.write_setting(house.project_file, "embedder_key", "sk-mine", project=house.project)
