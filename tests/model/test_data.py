import gzip
import lzma
from pathlib import Path

import pytest

from model.data import MAX_CHARACTERS, DataError, read_pairs

TEXT = "A dog.\tEin Hund.\nTea\u2028time.\tTeezeit.\n"
PAIRS = [("A dog.", "Ein Hund."), ("Tea\u2028time.", "Teezeit.")]


def write(path: Path, data: bytes) -> Path:
    if path.suffix == ".xz":
        data = lzma.compress(data)
    elif path.suffix == ".gz":
        data = gzip.compress(data)
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("name", ["pairs.tsv", "pairs.tsv.xz", "pairs.tsv.gz"])
def test_pairs_are_read_plain_or_compressed(tmp_path: Path, name: str) -> None:
    file = read_pairs(write(tmp_path / name, TEXT.encode()))
    assert file.pairs == PAIRS
    assert not file.malformed


def test_carriage_returns_and_a_byte_order_mark_are_no_text(tmp_path: Path) -> None:
    data = b"\xef\xbb\xbf" + TEXT.replace("\n", "\r\n").encode()
    assert read_pairs(write(tmp_path / "pairs.tsv", data)).pairs == PAIRS


def test_malformed_lines_are_counted_by_what_is_wrong(tmp_path: Path) -> None:
    long = "x" * (MAX_CHARACTERS + 1)
    lines = ["a\tb", "alone", "a\tb\tc", "a\t", " \tb", "", f"{long}\tb", "c\td"]
    file = read_pairs(write(tmp_path / "pairs.tsv", "\n".join(lines).encode()))
    assert file.pairs == [("a", "b"), ("c", "d")]
    assert file.malformed == {"not two columns": 3, "an empty column": 2, f"more than {MAX_CHARACTERS} characters": 1}
    assert sum(file.malformed.values()) == 6


def test_a_file_without_pairs_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"pairs\.tsv has no pair: a line is two sentences with a tab"):
        read_pairs(write(tmp_path / "pairs.tsv", b"no tab here\n"))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"there is no data file .*none\.tsv"):
        read_pairs(tmp_path / "none.tsv")


@pytest.mark.parametrize("name", ["pairs.tsv.xz", "pairs.tsv.gz"])
@pytest.mark.parametrize("damage", ["truncated", "changed", "foreign"])
def test_a_damaged_file_is_named(tmp_path: Path, name: str, damage: str) -> None:
    path = write(tmp_path / name, TEXT.encode() * 500)
    data = bytearray(path.read_bytes())
    if damage == "truncated":
        data = data[: len(data) // 2]
    elif damage == "changed":
        for index in range(len(data) // 2, len(data) // 2 + 8):
            data[index] ^= 0xFF
    else:
        data = bytearray(TEXT.encode())
    path.write_bytes(data)
    with pytest.raises(DataError, match=f"{name} cannot be read"):
        read_pairs(path)


def test_a_file_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"pairs.tsv cannot be read: .*utf-8"):
        read_pairs(write(tmp_path / "pairs.tsv", "Straße\tstreet".encode("latin-1")))
