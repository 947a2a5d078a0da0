"""The model from files: the same numbers as a slow computation, and files that are not what they seem."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy
import pytest

from dgent.embedder import MiniLM
from dgent.embedder.embedder import EmbedderCalls
from dgent.embedder.minilm import BATCH_TOKENS, MAX_TOKENS, Model, read_model
from dgent.embedder.safetensors import read_arrays
from dgent.embedder.wordpiece import WordPiece, read_wordpiece
from dgent.errors import Corrupt, EmbedderFailed, NotFound
from tests.embedder.tiny import DIM, HEADS, PIECES, Tiny


@pytest.fixture
def tiny(tmp_path: Path) -> Tiny:
    made = Tiny()
    made.write(tmp_path)
    return made


def read(folder: Path) -> Model:
    return read_model(folder, HEADS)


TEXTS = [
    "",
    "the runners",
    "Soup, soup",
    "runs",
    "x" * 200,
    "世run",
    "Ö o",
    "the " * 400,
    "\x00\ufffd\u200b,",
]


def test_the_numbers_are_those_of_a_slow_computation(tiny: Tiny, tmp_path: Path) -> None:
    pieces = WordPiece(PIECES, MAX_TOKENS)
    found = read(tmp_path).embed(TEXTS)
    for text, vector in zip(TEXTS, found.tolist(), strict=True):
        assert vector == pytest.approx(tiny.embed(pieces.encode(text)), abs=2e-5), text
    assert found.shape == (len(TEXTS), DIM) and found.dtype == numpy.float32


def test_many_texts_are_computed_in_parts(tiny: Tiny, tmp_path: Path) -> None:
    model = read(tmp_path)
    one = model.embed(["the runner"])[0]
    many = model.embed(["the runner", "soup"] * BATCH_TOKENS)
    assert numpy.allclose(many[::2], one, atol=1e-6) and len(many) == 2 * BATCH_TOKENS
    assert model.embed([]).shape == (0, DIM)


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("The Runners", "the run ##ner ##s"),
        ("run,soup", "run , soup"),
        ("Ö", "o"),
        ("runx soup", "[UNK] soup"),
        ("世世", "世 世"),
        ("the\tsoup\nthe\u00a0soup", "the soup the soup"),
        ("so\u00adup r\u200bun", "soup run"),
        ("runs" * 40, "[UNK]"),
    ],
)
def test_words_become_pieces(text: str, pieces: str) -> None:
    found = WordPiece(PIECES, 16).encode(text)
    assert [PIECES[number] for number in found] == ["[CLS]", *pieces.split(), "[SEP]"]


def test_a_long_text_is_cut_and_costs_no_more() -> None:
    found = WordPiece(PIECES, 16).encode("the " * 5_000_000)
    assert len(found) == 16 and (found[0], found[-1]) == (2, 3)


def test_a_model_that_is_not_installed_says_how_to_get_it(tmp_path: Path) -> None:
    missing = MiniLM(tmp_path / "none")
    assert not missing.installed and (missing.name, missing.dim) == ("all-MiniLM-L6-v2", 384)
    with pytest.raises(NotFound, match="dgent embed install"):
        missing.embed(["a"])


async def test_a_missing_model_is_an_embedder_that_fails(tmp_path: Path) -> None:
    with pytest.raises(EmbedderFailed, match="dgent embed install"):
        await EmbedderCalls(MiniLM(tmp_path)).embed(["a"], 10)


def header(**changed: Any) -> dict[str, Any]:
    return {"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]} | changed}


def write(path: Path, head: Any, body: bytes = bytes(8), length: int | None = None) -> Path:
    raw = head if isinstance(head, bytes) else json.dumps(head).encode()
    path.write_bytes(struct.pack("<Q", len(raw) if length is None else length) + raw + body)
    return path


def test_arrays_are_read(tmp_path: Path) -> None:
    found = read_arrays(write(tmp_path / "a", header(), struct.pack("<2f", 1.5, -2)))
    assert found["x"].tolist() == [1.5, -2] and not found["x"].flags.writeable


@pytest.mark.parametrize(
    "head",
    [
        header(dtype="F64"),
        header(dtype="pickle"),
        header(shape=[3]),
        header(shape=[-2]),
        header(shape=[2**40, 2**40]),
        header(shape=[1, 1, 1, 1, 2]),
        header(data_offsets=[-8, 0]),
        header(data_offsets=[8, 16]),
        header(data_offsets=[8, 0]),
        header(data_offsets=[0, 2**70]),
        header(data_offsets=[0]),
        {"x": None},
        {"x": {}},
        [],
        b"{",
        b"\xff\xff",
        {f"x{n}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for n in range(5000)},
    ],
)
def test_headers_that_lie_are_refused(tmp_path: Path, head: Any) -> None:
    with pytest.raises(Corrupt):
        read_arrays(write(tmp_path / "a", head))


@pytest.mark.parametrize("length", [0, 1, 10**6, 2**63, 2**64 - 1])
def test_lengths_that_lie_are_refused(tmp_path: Path, length: int) -> None:
    with pytest.raises(Corrupt):
        read_arrays(write(tmp_path / "a", header(), length=length))


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9])
def test_files_that_end_early_are_refused(tmp_path: Path, size: int) -> None:
    path = write(tmp_path / "a", header())
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(Corrupt):
        read_arrays(path)


@pytest.mark.parametrize("gone", ["embeddings.LayerNorm.bias", "encoder.layer.1.attention.self.key.weight"])
def test_a_model_without_a_part_is_refused(tiny: Tiny, tmp_path: Path, gone: str) -> None:
    del tiny.arrays[gone]
    tiny.write(tmp_path)
    with pytest.raises(Corrupt, match="not a model of this kind"):
        read(tmp_path)


def test_lists_of_pieces_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(Corrupt, match="UTF-8"):
        read_wordpiece(tmp_path / "vocab.txt", 16)
    (tmp_path / "vocab.txt").write_text("a\nb\n")
    with pytest.raises(Corrupt, match=r"\[CLS\]"):
        read_wordpiece(tmp_path / "vocab.txt", 16)
