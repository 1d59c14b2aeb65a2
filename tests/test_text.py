"""`contrib.text`: vocabularies, and vectors of words."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from gemel import nd
from gemel.contrib import text
from gemel.errors import ArgumentError, DataFileError, MissingFileError, UnknownNameError

COUNTS = Counter({"a": 1, "b": 2, "c": 2, "<pad>": 9, "d": 3})


@pytest.mark.parametrize(
    ("settings", "tokens"),
    [
        ({}, ["<unk>", "<pad>", "d", "b", "c", "a"]),
        ({"min_freq": 2}, ["<unk>", "<pad>", "d", "b", "c"]),
        ({"most_freq_count": 2}, ["<unk>", "<pad>", "d"]),
        ({"reserved_tokens": ["<pad>"], "most_freq_count": 2}, ["<unk>", "<pad>", "d", "b"]),
        ({"unknown_token": "?", "reserved_tokens": ["a"]}, ["?", "a", "<pad>", "d", "b", "c"]),
        ({"min_freq": 99}, ["<unk>"]),
    ],
)
def test_order_of_tokens(settings: Any, tokens: list[str]) -> None:
    vocabulary = text.vocab.Vocabulary(COUNTS, **settings)
    assert vocabulary.idx_to_token == tokens and len(vocabulary) == len(tokens)
    assert vocabulary.token_to_idx == {token: at for at, token in enumerate(tokens)}
    assert vocabulary.to_tokens(vocabulary.to_indices(tokens)) == tokens
    assert vocabulary.to_indices("nowhere") == 0 == vocabulary.to_indices(["nowhere"])[0]
    assert vocabulary.reserved_tokens == settings.get("reserved_tokens")
    with pytest.raises(IndexError, match="-1 is not a position from 0 to"):
        vocabulary.to_tokens([0, -1])


@pytest.mark.parametrize(
    "settings",
    [{"min_freq": 0}, {"reserved_tokens": ["<unk>"]}, {"reserved_tokens": ["x", "x"]}],
)
def test_impossible_vocabularies(settings: Any) -> None:
    with pytest.raises(ArgumentError, match="must be"):
        text.vocab.Vocabulary(COUNTS, **settings)


def test_counts() -> None:
    counted = text.utils.count_tokens_from_str(" One two,two \n", " |,", to_lower=True)
    assert counted == {"one": 1, "two": 2}
    assert text.utils.count_tokens_from_str("two", counter_to_update=counted) is counted
    assert counted["two"] == 3


LINES = "3 2\na 1 2\nb 3 4\n. . 5 6 \n"


def written(folder: Path, lines: str) -> str:
    path = folder / "vectors.txt"
    path.write_text(lines)
    return str(path)


def test_vectors_of_a_file(tmp_path: Path) -> None:
    """The header is no token; a token may contain spaces; other tokens get zeros."""
    found = text.embedding.CustomEmbedding(written(tmp_path, LINES))
    assert found.idx_to_token == ["<unk>", "a", "b", ". ."] and found.vec_len == 2
    assert isinstance(found.idx_to_vec, nd.NDArray) and found.idx_to_vec.dtype == "float32"
    assert found.get_vecs_by_tokens("b").tolist() == [3, 4]
    assert found.get_vecs_by_tokens(["A", "nowhere"]).tolist() == [[0, 0], [0, 0]]
    assert found.get_vecs_by_tokens(["A"], lower_case_backup=True).tolist() == [[1, 2]]
    found.update_token_vectors(["a", "<unk>"], nd.array([[7, 7], [8, 8]]))
    found.update_token_vectors("b", nd.array([9, 9]))
    assert found.idx_to_vec.tolist() == [[8, 8], [7, 7], [9, 9], [5, 6]]
    with pytest.raises(UnknownNameError, match="'nowhere' is not in the vocabulary"):
        found.update_token_vectors("nowhere", nd.array([1, 1]))


@pytest.mark.parametrize("header", ["", "3 2\n"])
def test_marks_of_byte_order_are_no_part_of_the_first_line(header: str, tmp_path: Path) -> None:
    found = text.embedding.CustomEmbedding(written(tmp_path, f"\ufeff{header}a 1 2\nb 3 4\n"))
    assert found.idx_to_token == ["<unk>", "a", "b"]
    assert found.get_vecs_by_tokens("a").tolist() == [1, 2]


def test_the_vector_of_unknown_tokens(tmp_path: Path) -> None:
    path = written(tmp_path, LINES)
    ones = text.embedding.CustomEmbedding(path, init_unknown_vec=nd.ones)
    assert ones.get_vecs_by_tokens("nowhere").tolist() == [1, 1]
    own = text.embedding.CustomEmbedding(path, unknown_token="a", init_unknown_vec=nd.ones)
    assert own.idx_to_token == ["a", "b", ". ."]
    assert own.get_vecs_by_tokens("nowhere").tolist() == [1, 2]


def test_vectors_for_a_vocabulary(tmp_path: Path) -> None:
    vocabulary = text.vocab.Vocabulary(Counter("bbcx"), reserved_tokens=["<pad>"])
    found = text.embedding.CustomEmbedding(written(tmp_path, LINES), vocabulary=vocabulary)
    assert found.idx_to_token == vocabulary.idx_to_token == ["<unk>", "<pad>", "b", "c", "x"]
    assert found.idx_to_vec.tolist() == [[0, 0], [0, 0], [3, 4], [0, 0], [0, 0]]
    both = text.embedding.CompositeEmbedding(vocabulary, [found, found])
    assert both.to_indices("b") == 2 and both.reserved_tokens == ["<pad>"]
    assert both.get_vecs_by_tokens("b").tolist() == [3, 4, 3, 4]
    with pytest.raises(ArgumentError, match="one embedding or a list"):
        text.embedding.CompositeEmbedding(vocabulary, [])


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("a 1 2\nb 1 x\n", "line 2: a token, ' ' and numbers are expected"),
        ("a 1 2\nb\n", "line 2: a token"),
        ("a 1 2\nb 3\nc 4 5\n", "line 2: 'b' has 1 numbers, the tokens before it 2"),
        ("2 2\na 1 2\n3 4\n", "line 3: '3' has 1 numbers, the tokens before it 2"),
        ("a 1 2\nb 1 2 3\n", "line 2: 'b' has 3 numbers, the tokens before it 2"),
        ("", "no line has a token and its numbers"),
        ("3 2\n", "no line has a token and its numbers"),
    ],
)
def test_damaged_files(lines: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(DataFileError, match=words):
        text.embedding.CustomEmbedding(written(tmp_path, lines))


def test_vectors_of_one_element(tmp_path: Path) -> None:
    found = text.embedding.CustomEmbedding(written(tmp_path, "2 1\na 1\n7 2\n"))
    assert found.idx_to_token == ["<unk>", "a", "7"]
    assert found.idx_to_vec.tolist() == [[0], [1], [2]]


def test_files_in_another_encoding(tmp_path: Path) -> None:
    path = tmp_path / "latin.txt"
    path.write_bytes("\xe9 1 2\n".encode("latin-1"))
    with pytest.raises(DataFileError, match=r"latin\.txt: .* give the file's encoding"):
        text.embedding.CustomEmbedding(str(path))
    found = text.embedding.CustomEmbedding(str(path), encoding="latin-1")
    assert found.idx_to_token == ["<unk>", "\xe9"]


def test_tokens_that_occur_twice(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="line 2: 'a' occurs again"):
        found = text.embedding.CustomEmbedding(written(tmp_path, "a 1 2\na 3 4\n"))
    assert found.get_vecs_by_tokens("a").tolist() == [1, 2]


def test_published_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are read from a folder, and `create` finds classes by name."""
    monkeypatch.setenv("MXNET_HOME", str(tmp_path))
    names = text.embedding.get_pretrained_file_names()
    assert names["glove"] == text.embedding.get_pretrained_file_names("glove")
    assert "glove.6B.50d.txt" in names["glove"] and "wiki.simple.vec" in names["fasttext"]
    with pytest.raises(MissingFileError, match=r"glove\.6B\.50d\.txt, which does not exist"):
        text.embedding.create("glove", pretrained_file_name="glove.6B.50d.txt")
    (tmp_path / "embeddings" / "glove").mkdir(parents=True)
    (tmp_path / "embeddings" / "glove" / "glove.6B.50d.txt").write_text(LINES)
    found = text.embedding.create("GloVe", pretrained_file_name="glove.6B.50d.txt")
    assert found.to_indices("b") == 2
    with pytest.raises(UnknownNameError, match="did you mean 'glove'"):
        text.embedding.create("glov")


def test_registered_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text.embedding, "_REGISTERED", {})

    @text.embedding.register
    class Mine(text.embedding.TokenEmbedding):  # type: ignore[misc]
        pass

    assert isinstance(text.embedding.create("mine"), Mine)
    assert text.embedding.get_pretrained_file_names("mine") == []
