"""Vectors of words, read from text files: a word and its numbers in each line.

Nothing is downloaded. Files of GloVe and fastText have to be in a folder, by default
~/.mxnet/embeddings/glove and ~/.mxnet/embeddings/fasttext.
"""

from __future__ import annotations

import os
import warnings
from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TextIO

import numpy

from gemel import ndarray as nd
from gemel.errors import (
    ArgumentError,
    DataFileError,
    MissingFileError,
    UnknownNameError,
    unknown_name,
)
from gemel.gluon.download import data_dir
from gemel.text.vocab import UNKNOWN, Vocabulary


class TokenEmbedding(Vocabulary):
    """A vocabulary with a vector for each token.

    Without `vocabulary` its tokens are those of the file, otherwise those of `vocabulary`. A token
    without a vector has that of the unknown token, which is the file's if it has one, otherwise
    ``init_unknown_vec(shape=(length,))``.
    """

    def __init__(self, vocabulary: Vocabulary | None = None, unknown_token: str = "<unk>") -> None:
        super().__init__(unknown_token=unknown_token)
        self._vocabulary = vocabulary
        self._vectors: Any = None

    @property
    def vec_len(self) -> int:
        """The number of elements of a vector."""
        return int(self._vectors.shape[1])

    @property
    def idx_to_vec(self) -> Any:
        """The vectors in order of the tokens' positions, as an NDArray."""
        return self._vectors

    def get_vecs_by_tokens(self, tokens: Any, lower_case_backup: bool = False) -> Any:
        """The vector of a token, or the vectors of a list of tokens as rows.

        With `lower_case_backup`, a token that is not there is looked up in lower case.
        """
        names = [tokens] if isinstance(tokens, str) else tokens
        at = [self._position(name, lower_case_backup) for name in names]
        found = self._vectors[nd.array(at, dtype="int64")]
        return found[0] if isinstance(tokens, str) else found

    def update_token_vectors(self, tokens: Any, new_vectors: Any) -> None:
        """Replace the vectors of tokens, by one vector or by a row for each.

        Raises `UnknownNameError` for a token that is not there.
        """
        names = [tokens] if isinstance(tokens, str) else tokens
        for token in names:
            if token not in self.token_to_idx:
                raise UnknownNameError(
                    f"update_token_vectors: {token!r} is not in the vocabulary; to replace the "
                    f"vector of unknown tokens give {self.unknown_token!r}"
                )
        at = nd.array([self.token_to_idx[token] for token in names], dtype="int64")
        self._vectors[at] = new_vectors.reshape((-1, self.vec_len))

    def _position(self, token: str, lower_case_backup: bool) -> int:
        if lower_case_backup and token not in self.token_to_idx:
            token = token.lower()
        return self.token_to_idx.get(token, UNKNOWN)

    def _read(
        self, path: str, delimiter: str, encoding: str, init_unknown_vec: Callable[..., Any]
    ) -> None:
        """Read a file, then keep the tokens of the vocabulary, if there is one."""
        numbers, unknown, length = array("f"), None, 0
        for where, token, vector in _lines(path, delimiter, encoding):
            if length == 0:
                length = len(vector)
            if len(vector) != length:
                raise DataFileError(
                    f"{where}: {token!r} has {len(vector)} numbers, the tokens before it {length}"
                )
            if token == self.unknown_token and unknown is None:
                unknown = vector
            elif token in self.token_to_idx:
                warnings.warn(f"{where}: {token!r} occurs again; it is left out", stacklevel=4)
            else:
                self._append(token)
                numbers.extend(vector)
        if length == 0:
            raise DataFileError(f"{path}: no line has a token and its numbers")
        first = init_unknown_vec(shape=(length,)) if unknown is None else unknown
        rows = numpy.array(numbers, dtype="float32").reshape(-1, length)
        self._vectors = nd.array(numpy.vstack([numpy.asarray(first, dtype="float32"), rows]))
        if self._vocabulary is not None:
            self._adopt(self._vocabulary, [self])

    def _adopt(self, vocabulary: Vocabulary, sources: Sequence[TokenEmbedding]) -> None:
        """Become the tokens of `vocabulary` with their vectors in the sources, joined."""
        tokens = vocabulary.idx_to_token
        self._vectors = nd.concat(*[each.get_vecs_by_tokens(tokens) for each in sources], dim=1)
        self._idx_to_token = list(tokens)
        self._token_to_idx = dict(vocabulary.token_to_idx)
        self._unknown_token = vocabulary.unknown_token
        self._reserved_tokens = vocabulary.reserved_tokens


def _lines(path: str, delimiter: str, encoding: str) -> Iterator[tuple[str, str, list[float]]]:
    """For each line: its place for messages, the token, and the numbers. A header is left out: a
    first line of two whole numbers, of the tokens and of the elements of a vector."""
    length = 0
    with open(path, encoding=encoding) as opened:
        for number, line in enumerate(_texts(path, opened), 1):
            where = f"{path}, line {number}"
            token, *rest = line.rstrip().split(delimiter)
            if number == 1 and len(rest) == 1 and token.isdecimal() and rest[0].isdecimal():
                continue
            more = len(rest) - length if length else 0
            if more > 0 and not _numbers(rest[more - 1 : more]):  # a token that has delimiters
                token, rest = delimiter.join([token, *rest[:more]]), rest[more:]
            vector = _numbers(rest)
            if not vector:
                raise DataFileError(f"{where}: a token, {delimiter!r} and numbers are expected")
            length = length or len(vector)
            yield where, token, vector


def _texts(path: str, opened: TextIO) -> Iterator[str]:
    """The lines of a file, without the mark of byte order that some editors put before the first.
    Raises `DataFileError` if they are in another encoding."""
    try:
        for number, line in enumerate(opened):
            yield line if number else line.removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise DataFileError(f"{path}: {error}; give the file's encoding") from None


def _numbers(texts: list[str]) -> list[float]:
    """The numbers in texts, or none if one of them is no number."""
    try:
        return [float(each) for each in texts]
    except ValueError:
        return []


class CustomEmbedding(TokenEmbedding):
    """The vectors of a file whose elements are separated by `elem_delim`.

    >>> vectors = CustomEmbedding("vectors.txt")
    >>> vectors.get_vecs_by_tokens(["one", "two"])
    """

    def __init__(
        self,
        pretrained_file_path: str,
        elem_delim: str = " ",
        encoding: str = "utf8",
        init_unknown_vec: Callable[..., Any] = nd.zeros,
        vocabulary: Vocabulary | None = None,
        unknown_token: str = "<unk>",
    ) -> None:
        super().__init__(vocabulary, unknown_token)
        path = os.path.expanduser(pretrained_file_path)
        if not os.path.isfile(path):
            raise MissingFileError(f"CustomEmbedding: there is no file {path}")
        self._read(path, elem_delim, encoding, init_unknown_vec)


class _Published(TokenEmbedding):
    """Vectors that somebody has published: a file in a folder named after them."""

    folder = ""
    #: Names of files, with which to try; any other file in the folder can be read as well.
    files: tuple[str, ...] = ()

    def __init__(
        self,
        pretrained_file_name: str,
        embedding_root: str | None = None,
        init_unknown_vec: Callable[..., Any] = nd.zeros,
        vocabulary: Vocabulary | None = None,
        unknown_token: str = "<unk>",
    ) -> None:
        super().__init__(vocabulary, unknown_token)
        root = embedding_root or os.path.join(data_dir(), "embeddings")
        path = os.path.join(os.path.expanduser(root), self.folder, pretrained_file_name)
        if not os.path.isfile(path):
            raise MissingFileError(
                f"{type(self).__name__} reads {path}, which does not exist, and downloads nothing; "
                "put the file there, or give the folder that contains "
                f"{self.folder}/{pretrained_file_name} as embedding_root="
            )
        self._read(path, " ", "utf8", init_unknown_vec)


class GloVe(_Published):
    """Vectors of GloVe (Pennington, Socher and Manning 2014)."""

    folder = "glove"
    files = (
        *(f"glove.6B.{length}d.txt" for length in (50, 100, 200, 300)),
        *(f"glove.{corpus}.300d.txt" for corpus in ("42B", "840B")),
        *(f"glove.twitter.27B.{length}d.txt" for length in (25, 50, 100, 200)),
    )

    def __init__(self, pretrained_file_name: str = "glove.840B.300d.txt", **settings: Any) -> None:
        super().__init__(pretrained_file_name, **settings)


class FastText(_Published):
    """Vectors of fastText (Bojanowski and others 2017), from its files ``.vec``."""

    folder = "fasttext"
    files = ("crawl-300d-2M.vec", "wiki.en.vec", "wiki.simple.vec", "wiki.zh.vec")

    def __init__(self, pretrained_file_name: str = "wiki.simple.vec", **settings: Any) -> None:
        super().__init__(pretrained_file_name, **settings)


class CompositeEmbedding(TokenEmbedding):
    """The tokens of `vocabulary`, whose vectors are those of several embeddings, joined."""

    def __init__(
        self, vocabulary: Vocabulary, token_embeddings: TokenEmbedding | Sequence[TokenEmbedding]
    ) -> None:
        super().__init__()
        single = isinstance(token_embeddings, TokenEmbedding)
        sources: Any = [token_embeddings] if single else token_embeddings
        if not sources or not all(isinstance(each, TokenEmbedding) for each in sources):
            raise ArgumentError("CompositeEmbedding: give one embedding or a list of them")
        self._adopt(vocabulary, sources)


#: Embeddings by the names that `create` takes.
_REGISTERED: dict[str, type[TokenEmbedding]] = {"glove": GloVe, "fasttext": FastText}


def register(embedding_cls: type[TokenEmbedding]) -> type[TokenEmbedding]:
    """A decorator that lets `create` find a class by its name in lower case."""
    _REGISTERED[embedding_cls.__name__.lower()] = embedding_cls
    return embedding_cls


def create(embedding_name: str, **settings: Any) -> TokenEmbedding:
    """The embedding "glove" or "fasttext", or a registered one. Raises `UnknownNameError`."""
    return _registered(embedding_name)(**settings)


def get_pretrained_file_names(embedding_name: str | None = None) -> Any:
    """Names of published files: of "glove" or "fasttext" a list, without a name a dictionary."""
    if embedding_name is not None:
        return list(getattr(_registered(embedding_name), "files", ()))
    return {name: list(getattr(each, "files", ())) for name, each in _REGISTERED.items()}


def _registered(name: str) -> type[TokenEmbedding]:
    found = _REGISTERED.get(name.lower())
    if found is None:
        raise unknown_name("embedding", name, _REGISTERED)
    return found


__all__ = [
    "CompositeEmbedding",
    "CustomEmbedding",
    "FastText",
    "GloVe",
    "TokenEmbedding",
    "create",
    "get_pretrained_file_names",
    "register",
]
