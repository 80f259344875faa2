import base64
import hashlib
import re
import struct
import zlib
from functools import cache

import pytest
import segno
import zxingcpp
from hypothesis import given, settings
from hypothesis import strategies as st

from zembil.ids import TOKEN_LENGTH
from zembil.qr import LinkCodes

LOCAL = "http://127.0.0.1:8420/p/"
PREFIXES = (
    LOCAL,
    "https://pay.example.et/p/",
    "https://pay.zembil.example.et/p/",  # level M, two blocks
    "https://payments.a-rather-long-name-of-a-shop.example.et/zembil/p/",  # version 6
    "https://" + "payments." * 14 + "example.et/p/",  # version 9
)
MODULE = 8  # pixels
QUIET = 4  # modules

tokens = st.text("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_", min_size=52, max_size=52)
Rows = list[list[int]]  # 1 is dark

codes_for = cache(LinkCodes.for_links)


def random_token(seed: int) -> str:
    return base64.urlsafe_b64encode(hashlib.sha512(b"%d" % seed).digest()[:39]).decode("ascii")


def pixels(png: bytes) -> Rows:
    """The pixels of a PNG of one bit per pixel; every checksum is verified on the way."""
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    chunks: list[tuple[bytes, bytes]] = []
    at = 8
    while at < len(png):
        (length,) = struct.unpack_from(">I", png, at)
        name, data = png[at + 4 : at + 8], png[at + 8 : at + 8 + length]
        assert struct.unpack_from(">I", png, at + 8 + length) == (zlib.crc32(name + data),)
        chunks.append((name, data))
        at += 12 + length
    assert [name for name, _ in chunks] == [b"IHDR", b"IDAT", b"IEND"]
    width, height, *rest = struct.unpack(">IIBBBBB", chunks[0][1])
    assert rest == [1, 0, 0, 0, 0]
    raw = zlib.decompress(chunks[1][1])
    stride = 1 + width // 8
    assert len(raw) == height * stride
    lines = [raw[start : start + stride] for start in range(0, len(raw), stride)]
    assert {line[0] for line in lines} == {0}
    return [[1 - (byte >> bit & 1) for byte in line[1:] for bit in range(7, -1, -1)] for line in lines]


def modules(png: bytes) -> Rows:
    """The modules of the symbol in a PNG, which must be whole blocks of pixels inside a quiet zone."""
    rows = pixels(png)
    small = [row[::MODULE] for row in rows[::MODULE]]
    assert rows == enlarged(small, MODULE)
    inner = [row[QUIET:-QUIET] for row in small[QUIET:-QUIET]]
    assert small == with_margin(inner, QUIET)
    return inner


def enlarged(rows: Rows, scale: int) -> Rows:
    return [[dark for dark in row for _ in range(scale)] for row in rows for _ in range(scale)]


def with_margin(rows: Rows, margin: int) -> Rows:
    blank = [0] * (len(rows[0]) + 2 * margin)
    side = [0] * margin
    return [*[blank] * margin, *([*side, *row, *side] for row in rows), *[blank] * margin]


def decoded(rows: Rows) -> str:
    """What a scanner reads in the pixels."""
    image = memoryview(bytes(0 if dark else 255 for row in rows for dark in row)).cast("B", (len(rows), len(rows[0])))
    (barcode,) = zxingcpp.read_barcodes(image, try_invert=False)
    return barcode.text


def segno_modules(link: str, mask: int) -> Rows:
    return [list(row) for row in segno.make_qr(link, error="l", mode="byte", mask=mask).matrix]


@cache
def mask_of(prefix: str) -> int:
    """The one mask that all codes of a prefix have."""
    link = prefix + "A" * TOKEN_LENGTH
    drawn = modules(codes_for(prefix).png(link))
    (mask,) = [mask for mask in range(8) if segno_modules(link, mask) == drawn]
    return mask


def test_a_hundred_random_links_are_read_by_a_scanner() -> None:
    for number in range(100):
        link = PREFIXES[number % 4] + random_token(number)
        assert decoded(pixels(codes_for(PREFIXES[number % 4]).png(link))) == link


@pytest.mark.parametrize("prefix", PREFIXES)
@given(token=tokens)
@settings(max_examples=25)
def test_a_code_from_the_table_is_segnos_own_symbol(prefix: str, token: str) -> None:
    codes = codes_for(prefix)
    assert codes.is_fast
    assert modules(codes.png(prefix + token)) == segno_modules(prefix + token, mask_of(prefix))


@pytest.mark.parametrize("length", [1, 2, 7, 40])
def test_a_table_can_be_for_tokens_of_another_length(length: int) -> None:
    codes = LinkCodes.for_links(LOCAL, length=length)
    link = LOCAL + "Z" * length
    assert codes.is_fast
    assert decoded(pixels(codes.png(link))) == link


@pytest.mark.parametrize(
    "link",
    [
        "https://elsewhere.example.et/p/" + "A" * TOKEN_LENGTH,
        LOCAL,
        LOCAL + "A" * (TOKEN_LENGTH - 1),
        LOCAL + "A" * (TOKEN_LENGTH + 1),
        LOCAL + "A" * (TOKEN_LENGTH - 1) + "!",
        LOCAL + "A" * (TOKEN_LENGTH - 1) + "é",
        LOCAL + "A" * (TOKEN_LENGTH - 2) + "é",
        LOCAL.upper() + "A" * TOKEN_LENGTH,
        "A",
    ],
)
def test_a_link_that_does_not_fit_the_table_is_drawn_all_the_same(link: str) -> None:
    assert decoded(pixels(codes_for(LOCAL).png(link))) == link


@pytest.mark.parametrize("prefix", ["https://ዘምቢል.example.et/p/", "https://" + "long." * 40 + "et/p/"])
def test_a_prefix_that_has_no_table_is_drawn_all_the_same(prefix: str) -> None:
    codes = LinkCodes.for_links(prefix)
    link = prefix + "A" * TOKEN_LENGTH
    assert not codes.is_fast
    assert decoded(pixels(codes.png(link))) == link


@pytest.mark.parametrize("length", [5, 17, 60, 100, 231, 400, 800, 1600, 2953])
def test_an_image_of_any_size_is_whole(length: int) -> None:
    link = "a" * length
    symbol = segno.make_qr(link, error="l")
    assert modules(codes_for(LOCAL).png(link)) == [list(row) for row in symbol.matrix]


def test_a_table_that_disagrees_with_segno_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def columns(*_: object) -> list[int]:
        return [1] * 3000

    monkeypatch.setattr("zembil.qr._columns", columns)
    codes = LinkCodes.for_links(LOCAL)
    link = LOCAL + "A" * TOKEN_LENGTH
    assert not codes.is_fast
    assert decoded(pixels(codes.png(link))) == link


def test_the_data_uri_holds_the_image() -> None:
    link = LOCAL + random_token(1)
    head, _, body = codes_for(LOCAL).png_data_uri(link).partition(",")
    assert head == "data:image/png;base64"
    assert base64.b64decode(body, validate=True) == codes_for(LOCAL).png(link)


@pytest.mark.parametrize("prefix", PREFIXES)
def test_the_drawing_for_a_terminal_is_read_by_a_scanner(prefix: str) -> None:
    link = prefix + random_token(2)
    rows: Rows = []
    for line in codes_for(prefix).terminal(link).splitlines():
        # Black on white is said in every line, and taken back at its end.
        drawn = re.fullmatch("\x1b\\[38;5;16;48;5;231m([ ▀▄█]+)\x1b\\[0m", line)
        assert drawn is not None
        rows += [[int(block in "▀█") for block in drawn[1]], [int(block in "▄█") for block in drawn[1]]]
    assert rows[:QUIET] == [[0] * len(rows[0])] * QUIET
    assert {(*row[:QUIET], *row[-QUIET:]) for row in rows} == {(0,) * 2 * QUIET}
    assert decoded(enlarged(rows, 4)) == link


def test_the_svg_is_read_by_a_scanner() -> None:
    link = LOCAL + random_token(3)
    svg = codes_for(LOCAL).svg(link).decode()
    box = re.search(r'viewBox="0 0 (\d+) \1"', svg)
    path = re.search(r'<path [^>]*stroke="#000"[^>]* d="([^"]+)"', svg)
    assert '<svg xmlns="http://www.w3.org/2000/svg"' in svg
    assert 'fill="#fff"' in svg
    assert box is not None
    assert path is not None
    rows = [[0] * int(box[1]) for _ in range(int(box[1]))]
    x = y = 0
    for command, across, _, down in re.findall(r"([Mmh])(-?\d+)( (-?[\d.]+))?", path[1]):
        if command == "h":
            rows[y][x : x + int(across)] = [1] * int(across)
        elif command == "m":
            y += int(float(down))
        else:
            x, y = 0, int(float(down))
        x += int(across)
    assert decoded(enlarged(rows, 4)) == link
