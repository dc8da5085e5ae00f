"""File names are cleaned on arrival, and a download has them for every client."""

import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from werkzeug.http import parse_options_header

from shared.files.file_names import clean_file_name, content_disposition

any_text = st.text(st.characters(), max_size=400)


@pytest.mark.parametrize(
    ("raw", "cleaned"),
    [
        ("report.pdf", "report.pdf"),
        ("../../etc/passwd", "passwd"),
        ("C:\\Users\\me\\notes.txt", "notes.txt"),
        ("a\r\nSet-Cookie: x", "aSet-Cookie: x"),
        ("ev\u202egpj.exe", "evgpj.exe"),
        ("nul\x00l.txt", "null.txt"),
        ("cafe\u0301.txt", "caf\u00e9.txt"),
        ("lone\ud800surrogate", "lonesurrogate"),
        ("...", "file"),
        ("", "file"),
        ("dir/", "file"),
        (" . spaced name . ", "spaced name"),
        ("\u00a0wide\u3000", "wide"),
        ("CON", "CON"),
        ('say "hi" 100%.txt', 'say "hi" 100%.txt'),
        (".env", "env"),
    ],
)
def test_a_name_is_cleaned(raw: str, cleaned: str) -> None:
    assert clean_file_name(raw) == cleaned


def test_a_long_name_keeps_its_suffix() -> None:
    assert clean_file_name("x" * 300 + ".pdf") == "x" * 251 + ".pdf"


def test_a_long_name_is_not_cut_inside_a_character() -> None:
    cleaned = clean_file_name("é" * 200 + ".txt")
    assert cleaned == "é" * 125 + ".txt"


def test_a_suffix_longer_than_a_suffix_is_cut_like_the_rest() -> None:
    assert clean_file_name("a." + "b" * 300) == "a." + "b" * 253


@given(any_text)
@example("\u0344" * 100)
@example("a\u200d\u0301")
def test_a_cleaned_name_can_be_kept_anywhere(raw: str) -> None:
    cleaned = clean_file_name(raw)
    assert 0 < len(cleaned.encode()) <= 255
    assert not set("/\\\r\n\0") & set(cleaned)
    assert unicodedata.is_normalized("NFC", cleaned)
    assert not {unicodedata.category(c) for c in cleaned} & {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
    assert clean_file_name(cleaned) == cleaned


@given(any_text)
@example('quote " and \\ and % and \u2100')
def test_the_header_of_a_download_reads_back_as_the_cleaned_name(raw: str) -> None:
    name = clean_file_name(raw)
    header = content_disposition(name)
    assert header.isascii()
    assert header.isprintable()
    kind, parameters = parse_options_header(header)
    assert kind == "attachment"
    assert parameters["filename"] == name


def test_old_clients_get_a_plain_name_without_anything_they_might_misread() -> None:
    assert content_disposition('résumé "50%" ℀.txt').startswith(
        'attachment; filename="resume _50__ a_c.txt"; '
    )
