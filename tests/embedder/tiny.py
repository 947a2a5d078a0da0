"""A model like MiniLM, but tiny, of random numbers; and what it computes, worked out in plain Python."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "run", "##ner", "##s", "the", ",", "soup", "ö", "o", "世"]
DIM, WIDE, LAYERS, HEADS = 8, 12, 2, 2

Matrix = list[list[float]]


class Tiny:
    """The numbers of the model by their names, as rows."""

    def __init__(self, seed: int = 1) -> None:
        self._random = random.Random(seed)
        self.arrays: dict[str, Matrix] = {
            "embeddings.word_embeddings.weight": self._matrix(len(PIECES), DIM),
            "embeddings.position_embeddings.weight": self._matrix(300, DIM),
            "embeddings.token_type_embeddings.weight": self._matrix(2, DIM),
        }
        self._norm("embeddings.LayerNorm")
        for number in range(LAYERS):
            layer = f"encoder.layer.{number}"
            for name in ("query", "key", "value"):
                self._dense(f"{layer}.attention.self.{name}", DIM, DIM)
            self._dense(f"{layer}.attention.output.dense", DIM, DIM)
            self._norm(f"{layer}.attention.output.LayerNorm")
            self._dense(f"{layer}.intermediate.dense", WIDE, DIM)
            self._dense(f"{layer}.output.dense", DIM, WIDE)
            self._norm(f"{layer}.output.LayerNorm")

    def _matrix(self, rows: int, columns: int, around: float = 0.0) -> Matrix:
        return [[around + self._random.gauss(0, 0.5) for _ in range(columns)] for _ in range(rows)]

    def _dense(self, name: str, rows: int, columns: int) -> None:
        self.arrays[f"{name}.weight"] = self._matrix(rows, columns)
        self.arrays[f"{name}.bias"] = self._matrix(1, rows)

    def _norm(self, name: str) -> None:
        self.arrays[f"{name}.weight"] = self._matrix(1, DIM, 1.0)
        self.arrays[f"{name}.bias"] = self._matrix(1, DIM)

    def write(self, folder: Path) -> None:
        """Write the files of the model."""
        import array

        header: dict[str, object] = {"__metadata__": {"format": "pt"}}
        body = b""
        for name, rows in self.arrays.items():
            raw = array.array("f", [each for row in rows for each in row]).tobytes()
            flat = name.endswith("bias") or "LayerNorm" in name
            shape = [len(rows[0])] if flat else [len(rows), len(rows[0])]
            header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(body), len(body) + len(raw)]}
            body += raw
        text = json.dumps(header).encode()
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + body)
        (folder / "vocab.txt").write_text("\n".join(PIECES) + "\n", encoding="utf-8")

    # -- the slow way -------------------------------------------------------------------------

    def embed(self, tokens: list[int]) -> list[float]:
        """Return the vector of some tokens."""
        arrays = self.arrays
        words, places = (arrays[f"embeddings.{kind}_embeddings.weight"] for kind in ("word", "position"))
        kinds = arrays["embeddings.token_type_embeddings.weight"][0]
        states = [
            [word + place + kind for word, place, kind in zip(words[token], places[at], kinds, strict=True)]
            for at, token in enumerate(tokens)
        ]
        states = [self._normalize(state, "embeddings.LayerNorm") for state in states]
        for number in range(LAYERS):
            states = self._layer(states, f"encoder.layer.{number}")
        mean = [sum(state[at] for state in states) / len(states) for at in range(DIM)]
        size = math.sqrt(sum(each * each for each in mean))
        return [each / size for each in mean]

    def _layer(self, states: Matrix, layer: str) -> Matrix:
        query, key, value = (
            [self._apply(state, f"{layer}.attention.self.{name}") for state in states]
            for name in ("query", "key", "value")
        )
        part = DIM // HEADS
        mixed: Matrix = [[] for _ in states]
        for head in range(HEADS):
            here = slice(head * part, (head + 1) * part)
            for at, one in enumerate(query):
                products = [_product(one[here], other[here]) for other in key]
                powers = [math.exp(product / math.sqrt(part)) for product in products]
                shares = [power / sum(powers) for power in powers]
                mixed[at] += [
                    sum(share * row[here][place] for share, row in zip(shares, value, strict=True))
                    for place in range(part)
                ]
        found = []
        for state, taken in zip(states, mixed, strict=True):
            added = _add(state, self._apply(taken, f"{layer}.attention.output.dense"))
            joined = self._normalize(added, f"{layer}.attention.output.LayerNorm")
            wide = [
                x * (1 + math.erf(x / math.sqrt(2))) / 2
                for x in self._apply(joined, f"{layer}.intermediate.dense")
            ]
            narrow = _add(joined, self._apply(wide, f"{layer}.output.dense"))
            found.append(self._normalize(narrow, f"{layer}.output.LayerNorm"))
        return found

    def _apply(self, state: list[float], name: str) -> list[float]:
        weights, (biases,) = self.arrays[f"{name}.weight"], self.arrays[f"{name}.bias"]
        return [_product(row, state) + bias for row, bias in zip(weights, biases, strict=True)]

    def _normalize(self, state: list[float], name: str) -> list[float]:
        (scales,), (shifts,) = self.arrays[f"{name}.weight"], self.arrays[f"{name}.bias"]
        mean = sum(state) / len(state)
        spread = math.sqrt(sum((each - mean) ** 2 for each in state) / len(state) + 1e-12)
        return [
            (each - mean) / spread * scale + shift
            for each, scale, shift in zip(state, scales, shifts, strict=True)
        ]


def _add(one: list[float], other: list[float]) -> list[float]:
    return [a + b for a, b in zip(one, other, strict=True)]


def _product(one: list[float], other: list[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))
