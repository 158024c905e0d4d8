from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from typing import Any

import docx
import pptx
import pytest
from docx.oxml import parse_xml
from hypothesis import given, settings
from hypothesis import strategies as st

from service.heads.translate.files import (
    SUPPORTED_FORMATS,
    DocumentError,
    InvalidDocumentError,
    UnsupportedDocumentError,
    archive,
)
from service.heads.translate.files.registry import open_document


def translate_document(name: str, data: bytes, translate: Callable[[list[str]], list[str]]) -> tuple[str, bytes]:
    document = open_document(name, data)
    return name, document.render(translate(document.texts))


def unchanged(texts: list[str]) -> list[str]:
    return texts


def shout(texts: list[str]) -> list[str]:
    return [text.upper() for text in texts]


def word_document() -> bytes:
    document = docx.Document()
    paragraph = document.add_paragraph("Hello ")
    paragraph.add_run("bold").bold = True
    paragraph.add_run(" world, ")
    paragraph.add_run("cut here.")
    document.add_heading("A title", 1)
    table = document.add_table(1, 2)
    table.cell(0, 0).text = "One cell"
    table.cell(0, 1).text = "Two\tcolumns\nand lines"
    document.sections[0].header.paragraphs[0].text = "The header"
    document.sections[0].footer.paragraphs[0].text = "The footer"
    return saved(document)


def presentation() -> bytes:
    slides = pptx.Presentation()
    slide = slides.slides.add_slide(slides.slide_layouts[0])
    slide.shapes.title.text = "My title"
    slide.placeholders[1].text = "First line\nsecond line"
    return saved(slides)


def saved(document: Any) -> bytes:
    stream = io.BytesIO()
    document.save(stream)
    return stream.getvalue()


SUBTITLES = (
    "1\r\n00:00:01,000 --> 00:00:02,500\r\n<i>Hello my dear\r\nfriend.</i>\r\n\r\n"
    "7\r\n00:00:03,000 --> 00:00:04,000\r\n- Hi!\r\n- Bye!\r\n\r\n"
)
DOCUMENTS = {
    "a.txt": "Schöne Grüße.\r\n\r\n  Und mehr.\n".encode(),
    "a.html": "<p class=x>Grüße an <b>alle</b> &amp; mehr<br>".encode(),
    "a.htm": b"<title>Only a title</title>",
    "a.srt": SUBTITLES.encode(),
    "a.docx": word_document(),
    "a.pptx": presentation(),
}


def entries(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        return {name: file.read(name) for name in file.namelist()}


def test_every_format_has_a_document_here() -> None:
    assert sorted(DOCUMENTS) == sorted(f"a{extension}" for extension in SUPPORTED_FORMATS)


@pytest.mark.parametrize("name", sorted(DOCUMENTS))
def test_an_unchanged_translation_gives_the_same_document(name: str) -> None:
    data = DOCUMENTS[name]
    new_name, same = translate_document(name, data, unchanged)
    assert new_name == name
    if data.startswith(b"PK"):
        assert entries(same) == entries(data)
    else:
        assert same == data


@pytest.mark.parametrize("name", sorted(DOCUMENTS))
def test_every_text_is_replaced(name: str) -> None:
    data = DOCUMENTS[name]
    _, shouted = translate_document(name.upper(), data, shout)
    texts = open_document(name, data).texts
    assert texts
    assert open_document(name, shouted).texts == shout(texts)


def test_word_formatting_tables_headers_and_footers_are_kept() -> None:
    _, data = translate_document("a.docx", DOCUMENTS["a.docx"], shout)
    document = docx.Document(io.BytesIO(data))
    runs = [(run.text, run.bold) for run in document.paragraphs[0].runs]
    assert runs == [("HELLO ", None), ("BOLD", True), (" WORLD, CUT HERE.", None), ("", None)]
    style = document.paragraphs[1].style
    assert style is not None
    assert style.name == "Heading 1"
    assert [cell.text for cell in document.tables[0].rows[0].cells] == ["ONE CELL", "TWO\tCOLUMNS\nAND LINES"]
    assert document.sections[0].header.paragraphs[0].text == "THE HEADER"
    assert document.sections[0].footer.paragraphs[0].text == "THE FOOTER"


def test_word_hyperlinks_are_translated_and_kept() -> None:
    document = docx.Document()
    paragraph = document.add_paragraph("See ")
    link = parse_xml(
        '<w:hyperlink xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main" w:anchor="top">'
        "<w:r><w:t>this page</w:t></w:r></w:hyperlink>"
    )
    paragraph._p.append(link)
    paragraph.add_run(" now.")
    assert open_document("a.docx", saved(document)).texts == ["See ", "this page", " now."]
    _, data = translate_document("a.docx", saved(document), shout)
    translated = docx.Document(io.BytesIO(data)).paragraphs[0]
    assert translated.text == "SEE THIS PAGE NOW."
    assert translated.hyperlinks[0].text == "THIS PAGE"
    assert translated.hyperlinks[0].fragment == "top"


def test_slides_are_translated() -> None:
    _, data = translate_document("a.pptx", DOCUMENTS["a.pptx"], shout)
    shapes = pptx.Presentation(io.BytesIO(data)).slides[0].shapes
    assert [shape.text_frame.text for shape in shapes] == ["MY TITLE", "FIRST LINE\nSECOND LINE"]


def test_subtitles_keep_numbers_times_and_lines() -> None:
    assert open_document("a.srt", SUBTITLES.encode()).texts == ["<i>Hello my dear friend.</i>", "- Hi!\n- Bye!"]
    _, data = translate_document(
        "a.srt", SUBTITLES.encode(), lambda texts: ["<i>Hallo mein lieber Freund.</i>", "- Hallo!\n- Tschüss!"]
    )
    assert data.decode() == SUBTITLES.replace("Hello my dear\r\nfriend.", "Hallo mein\r\nlieber Freund.").replace(
        "- Hi!\r\n- Bye!", "- Hallo!\r\n- Tschüss!"
    )


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_text_keeps_its_encoding_and_byte_order_mark(encoding: str) -> None:
    text = "Schöne Grüße aus Köln.\r\n\r\nDas ist ein längerer Text über die Straße.\n"
    _, data = translate_document("a.txt", text.encode(encoding), shout)
    assert data == text.upper().encode(encoding)


def test_text_becomes_utf8_when_its_encoding_lacks_a_character() -> None:
    _, data = translate_document("a.txt", "Straße über Köln".encode("cp1252"), lambda texts: ["Łódź"])
    assert data == "Łódź".encode("utf-8-sig")


def test_html_keeps_its_declared_encoding() -> None:
    document = '<meta charset="iso-8859-2"><p>Zażółć gęślą</p>'.encode("iso-8859-2")
    assert open_document("a.html", document).texts == ["Zażółć gęślą"]
    _, data = translate_document("a.html", document, lambda texts: ["ż € <"])
    assert data == '<meta charset="iso-8859-2"><p>ż &#8364; &lt;</p>'.encode("iso-8859-2")


@pytest.mark.parametrize(
    ("name", "data"), [("a.txt", b" \r\n"), ("a.html", b"<br>"), ("a.srt", b""), ("a.docx", saved(docx.Document()))]
)
def test_a_file_without_text_has_no_texts(name: str, data: bytes) -> None:
    assert open_document(name, data).texts == []


@pytest.mark.parametrize("name", ["a.exe", "a", "a.doc", "docx"])
def test_an_unknown_format_is_refused_by_name(name: str) -> None:
    with pytest.raises(UnsupportedDocumentError, match=r"allowed: \.txt, \.html"):
        open_document(name, b"text")


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.docx", b"", "damaged"),
        ("a.docx", b"PK\x03\x04 and so on", "damaged"),
        ("a.docx", DOCUMENTS["a.docx"][:-40], "damaged"),
        ("a.docx", DOCUMENTS["a.pptx"], "no word/document.xml"),
        ("a.pptx", DOCUMENTS["a.docx"], "no ppt/presentation.xml"),
        ("a.txt", b"\x00\x01\x02text", "not text"),
        ("a.srt", b"hello", "not a SubRip"),
        ("a.srt", b"1\n00:00:99,000 -> x\nhello\n", "not a SubRip"),
    ],
)
def test_a_damaged_file_is_refused(name: str, data: bytes, message: str) -> None:
    with pytest.raises(InvalidDocumentError, match=message):
        open_document(name, data)


WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"


def packed(**contents: str) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in contents.items():
            file.writestr(f"word/{name}.xml", content)
    return stream.getvalue()


def word_part(root: str, body: str) -> str:
    return f'<w:{root} xmlns:w="{WORD}">{body}</w:{root}>'


def test_a_zip_bomb_is_refused_before_it_is_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidDocumentError, match="times its size"):
        open_document("a.docx", packed(document=" " * 20_000_000))
    monkeypatch.setattr(archive, "MAX_EXPANDED_BYTES", 1_000)
    with pytest.raises(InvalidDocumentError, match="unpacks to"):
        open_document("a.docx", DOCUMENTS["a.docx"])


def test_elements_are_counted_over_all_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MAX_ELEMENTS", 1_000)
    half = "<w:p/>" * 499
    allowed = packed(document=word_part("document", half), header1=word_part("hdr", half))
    assert open_document("a.docx", allowed).texts == []
    with pytest.raises(InvalidDocumentError, match="more than 1000 XML elements"):
        open_document("a.docx", packed(document=word_part("document", half), header1=word_part("hdr", half + "<a/>")))


def test_depth_is_bounded() -> None:
    def nested(depth: int) -> bytes:
        return packed(document=word_part("document", "<w:sdt>" * (depth - 1) + "</w:sdt>" * (depth - 1)))

    assert open_document("a.docx", nested(archive.MAX_DEPTH)).texts == []
    with pytest.raises(InvalidDocumentError, match="nested deeper than 200"):
        open_document("a.docx", nested(archive.MAX_DEPTH + 1))


@pytest.mark.parametrize(
    ("name", "part", "root"),
    [
        ("a.docx", "word/document.xml", "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}document"),
        ("a.docx", "word/header1.xml", "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}hdr"),
        ("a.pptx", "ppt/presentation.xml", "presentation"),
        ("a.pptx", "ppt/slides/slide1.xml", "sld"),
    ],
)
def test_a_part_with_another_root_is_refused(name: str, part: str, root: str) -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as file:
        for entry, content in entries(DOCUMENTS[name]).items():
            file.writestr(entry, b"<x><a/></x>" if entry == part else content)
    with pytest.raises(InvalidDocumentError, match=f"{part} in the file .* its root is x, not .*{root}"):
        open_document(name, stream.getvalue())


def test_entities_are_never_expanded() -> None:
    bomb = '<!DOCTYPE a [<!ENTITY b "bbbb"><!ENTITY c SYSTEM "file:///etc/hostname">]><a>&b;&c;</a>'
    with pytest.raises(InvalidDocumentError, match="document type"):
        open_document("a.docx", packed(document=bomb))


def test_broken_xml_is_refused() -> None:
    with pytest.raises(InvalidDocumentError, match="not well-formed"):
        open_document("a.docx", packed(document=word_part("document", "<a><b></a>")))


def test_a_damaged_central_directory_is_refused() -> None:
    data = bytearray(DOCUMENTS["a.docx"])
    end = data.rindex(b"PK\x05\x06")
    data[end + 16 : end + 20] = b"\xff\xff\xff\x7f"  # the offset of the central directory
    with pytest.raises(InvalidDocumentError, match="damaged"):
        open_document("a.docx", bytes(data))


def test_two_entries_of_one_name_are_refused() -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as file:
        file.writestr("word/document.xml", word_part("document", ""))
        with pytest.warns(UserWarning, match="Duplicate name"):
            file.writestr("word/document.xml", "<x/>")
    with pytest.raises(InvalidDocumentError, match="two entries of one name"):
        open_document("a.docx", stream.getvalue())


def read_and_write(name: str, data: bytes) -> None:
    """Any other error than one about the document fails the test, and so does one that says nothing."""
    refusal = "the file is read"
    try:
        translate_document(name, data, shout)
    except DocumentError as error:
        refusal = str(error)
    assert len(refusal.split()) > 2, refusal


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_damaged_file_of_any_kind_is_read_or_refused_with_words(draw: st.DataObject) -> None:
    name = draw.draw(st.sampled_from(sorted(DOCUMENTS)))
    data = bytearray(DOCUMENTS[name])
    # Half of the faults lie at the end, where a zip archive has its directory.
    start = draw.draw(st.sampled_from([0, max(0, len(data) - 400)]))
    for _ in range(draw.draw(st.integers(1, 4))):
        position = draw.draw(st.integers(start, len(data) - 1))
        match draw.draw(st.sampled_from(["change", "cut", "insert"])):
            case "change":
                data[position] = draw.draw(st.integers(0, 255))
            case "cut":
                del data[position : position + draw.draw(st.integers(1, 50))]
                data += b"x" * (1 if not data else 0)
            case _:
                data[position:position] = draw.draw(st.binary(max_size=20))
    read_and_write(name, bytes(data))


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(sorted(SUPPORTED_FORMATS)), st.one_of(st.binary(max_size=300), st.text().map(str.encode)))
def test_any_bytes_are_read_or_refused_with_words(extension: str, data: bytes) -> None:
    read_and_write(f"a{extension}", data)


@pytest.mark.parametrize(
    "charset", ["undefined", "punycode", "idna", "unicode_escape", "utf-7", "hex", "rot13", "zlib", "no-such-thing"]
)
def test_a_declared_encoding_that_is_none_is_ignored(charset: str) -> None:
    document = f"<meta charset={charset}><p>Schöne Grüße aus Köln und Düsseldorf</p>".encode("cp1252")
    assert open_document("a.html", document).texts == ["Schöne Grüße aus Köln und Düsseldorf"]
    _, data = translate_document("a.html", document, shout)
    assert "GRÜSSE AUS KÖLN".encode("cp1252") in data


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_html_keeps_its_line_ends_where_texts_change(end: str) -> None:
    document = f"<p>One{end}line</p>{end}<pre>{end}two{end}{end}three</pre>{end}<p>&amp; four{end}"
    assert open_document("a.html", document.encode()).texts == ["One line", "two\n\nthree", "& four"]
    _, data = translate_document("a.html", document.encode(), lambda texts: ["a", "b", "c"])
    assert data.decode() == f"<p>a</p>{end}<pre>{end}b</pre>{end}<p>c{end}"
