"""QR codes of payment links: PNG, data URI, SVG and a drawing for terminals. A PNG takes 10 µs, not 4 ms.

With version, error level and mask fixed, a QR symbol is an affine function of the bits of its text over GF(2):
Reed-Solomon is linear, placement is a permutation, the mask a constant. And a PNG of black and white modules can be
deflated so that each module is one bit at a fixed place: a Huffman code in which the bytes 00 and FF are both two bits
long, and copies that repeat each line. So the compressed image itself is affine in the link, and drawing a link is one
XOR per character of its token; only the two checksums of the PNG are computed anew.

segno draws everything that does not fit the table, and is the judge of the table: see `LinkCodes.for_links`.
"""

import operator
import struct
import zlib
from binascii import b2a_base64
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial, reduce
from io import BytesIO
from itertools import compress, pairwise, zip_longest
from operator import getitem
from string import ascii_letters, digits
from typing import Any, Self, cast

import segno
from segno import consts, encoder

from zembil.ids import TOKEN_LENGTH

_ALPHABET = (ascii_letters + digits + "-_").encode()
# segno's inside has no types and promises nothing; `LinkCodes.for_links` checks what is made of it.
_consts, _encoder = cast("Any", consts), cast("Any", encoder)
_xor: Callable[[int, int], int] = cast("Any", operator).xor

_QUIET = 4  # modules of light margin that the standard asks for
_SCALE = 8  # pixels to a module: crisp when enlarged or printed, and a module is one byte of a line
_VERSION_MAX = 9  # up to here the length of the text is one byte; 230 characters are enough for any base address
# The order in which deflate gives the lengths of the codes for lengths; the four that we use have two bits each.
_LENGTH_ORDER = (16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1)
_LENGTH_CODES = {0: 0b00, 1: 0b10, 2: 0b01, 18: 0b11}  # mirrored, as Huffman codes stand in a deflate stream
_DARK, _LIGHT, _END, _COPY = 0b00, 0b10, 0b01, 0b11  # mirrored too: the codes of the bytes 00 and FF, end and copy
_IDAT = b"IDAT\x78\x01"
_IEND = b"\0\0\0\0IEND\xaeB`\x82"
# Colours by number, not by name: a terminal's theme changes "black" and "white", but never these two.
_TERMINAL_ROW = "\x1b[38;5;16;48;5;231m{}\x1b[0m\n"
_HALF_BLOCKS = {(0, 0): " ", (1, 0): "▀", (0, 1): "▄", (1, 1): "█"}


class LinkCodes:
    """QR codes of links that begin with one prefix; links that do not, or of another length, are drawn by segno."""

    def __init__(self, prefix: str, canvas: "_Canvas", base: int, tables: list[dict[int, int]]) -> None:
        self._prefix = prefix
        self._canvas = canvas
        self._base = base
        self._tables = tables

    @classmethod
    def for_links(cls, prefix: str, *, length: int = TOKEN_LENGTH) -> Self:
        """Build the table for links of `prefix` and `length` more characters; takes 20 ms.

        The table is used only if it draws sample links exactly as segno does: it is made with parts of segno that are
        not promised to stay, and a code that pays somebody else would be worse than a slow one.
        """
        # The sample decides version, level and mask. Level M would cost a version on the usual base address, and from
        # a cheap screen larger modules are worth more than more redundancy; where M fits the version, segno takes it.
        sample = prefix + ("AbCd0eFgH1-iJk_LmN2o" * (length // 20 + 1))[:length]
        model = segno.make_qr(sample, error="l", mode="byte")
        canvas = _canvas(len(model.matrix))
        if not isinstance(model.version, int) or model.version > _VERSION_MAX or not prefix.isascii():
            return cls(prefix, canvas, 0, [])
        symbol = partial(
            segno.make_qr, error=model.error, version=model.version, mode="byte", mask=model.mask, boost_error=False
        )
        columns = list(_columns(canvas, model.version, model.error))
        first = 12 + 8 * len(prefix)  # before the text stand four bits of mode and eight of length
        tables = [_table(columns[start : start + 8]) for start in range(first, first + 8 * length, 8)]
        codes = cls(prefix, canvas, canvas.drawn(symbol(prefix.encode() + bytes(length)).matrix), tables)
        # Between them, j and U have every bit of a character.
        proofs = [prefix + (pair * length)[:length] for pair in ("jU", "Uj")]
        if all(codes._packed(link) == canvas.drawn(symbol(link).matrix) for link in proofs):
            return codes
        return cls(prefix, canvas, 0, [])

    @property
    def is_fast(self) -> bool:
        """Whether links are drawn from the table."""
        return bool(self._tables)

    def png(self, link: str) -> bytes:
        """The code as a PNG of one bit per pixel, eight pixels to a module, with its quiet zone."""
        packed = self._packed(link)
        if packed is not None:
            return self._canvas.png(packed)
        symbol = segno.make_qr(link, error="l")
        canvas = _canvas(len(symbol.matrix))
        return canvas.png(canvas.drawn(symbol.matrix))

    def png_data_uri(self, link: str) -> str:
        return "data:image/png;base64," + b2a_base64(self.png(link), newline=False).decode("ascii")

    def svg(self, link: str) -> bytes:
        """The code as an SVG file that takes the size its container gives it; drawn by segno, in 4 ms."""
        drawn = BytesIO()
        segno.make_qr(link, error="l").save(drawn, kind="svg", light="#fff", omitsize=True, border=_QUIET)
        return drawn.getvalue()

    def terminal(self, link: str) -> str:
        """The code in half blocks, black on white whatever the terminal's own colours are."""
        rows = [tuple(row) for row in segno.make_qr(link, error="l").matrix_iter(border=_QUIET)]
        pairs = zip_longest(rows[::2], rows[1::2], fillvalue=(0,) * len(rows))
        return "".join(
            _TERMINAL_ROW.format("".join(_HALF_BLOCKS[pair] for pair in zip(upper, lower, strict=True)))
            for upper, lower in pairs
        )

    def _packed(self, link: str) -> int | None:
        """The packed image of a link, or None if the link does not fit the table."""
        token = link[len(self._prefix) :].encode()
        if not self._tables or len(token) != len(self._tables) or not link.startswith(self._prefix):
            return None
        try:
            return reduce(_xor, map(getitem, self._tables, token), self._base)
        except KeyError:  # a character that no token has
            return None


class _Canvas:
    """The packed image of symbols of one size: the IDAT chunk of a PNG up to its checksums, as a number, low bit first.

    A module is the code of byte 00 or FF, and the bit that tells them apart is the module: 1 is light. Each line of
    modules is written once (a filter byte, then the modules) and copied seven times from the line above.
    """

    def __init__(self, size: int) -> None:
        self._edge = size + 2 * _QUIET
        line_bytes = 1 + self._edge
        bytes_ = self._edge * _SCALE * line_bytes
        header, copies = _deflate_parts(line_bytes)
        self._start = 8 * len(_IDAT) + header[1] + 2 + 1  # the first module's bit, after the code of the filter byte
        self._stride = 2 * line_bytes + copies[1]
        fields = [(int.from_bytes(_IDAT, "little"), 8 * len(_IDAT)), header]
        for _ in range(self._edge):
            fields += [(_DARK, 2), *[(_LIGHT, 2)] * self._edge, copies]
        self._light, bits = _joined([*fields, (_END, 2)])
        self._size_bytes = (bits + 7) // 8
        edge = self._edge * _SCALE
        ihdr = b"IHDR" + struct.pack(">IIBBBBB", edge, edge, 1, 0, 0, 0, 0)
        self._head = b"\x89PNG\r\n\x1a\n\0\0\0\x0d" + ihdr + struct.pack(">I", zlib.crc32(ihdr))
        # The length of IDAT: without the four bytes of the name, with the four of Adler's checksum.
        self._head += struct.pack(">I", self._size_bytes)
        # Adler's second sum counts each byte as often as there are bytes from it to the end, itself included. For the
        # eight bytes of a light module in row r and column c that is 8 * (bytes - 1) - 28 * line_bytes
        # - 64 * line_bytes * r - 8 * c, so three sums over the light modules are enough: how many, their rows, and
        # their columns. The last two are taken bit by bit: how many have an odd row, how many the next bit of it, ...
        self._bytes = bytes_
        self._weight = 8 * (bytes_ - 1) - 28 * line_bytes
        places, planes = range(self._edge), range(self._edge.bit_length())
        odd_rows = [sum(1 << self._stride * row for row in places if row >> plane & 1) for plane in planes]
        odd_columns = [sum(1 << self.bit(0, column) for column in places if column >> plane & 1) for plane in planes]
        every_row = sum(1 << self._stride * row for row in places)
        one_row = sum(1 << self.bit(0, column) for column in places)
        # Counting bits is the slow part and every other bit is free, so the lower half of the image goes between the
        # bits of the upper half.
        half = (self._edge + 1) // 2
        self._modules = one_row * every_row
        self._fold = half * self._stride - 1
        self._folded = (1 << half * self._stride) - 1 << self._start
        masks = [(64 * line_bytes << plane, one_row * rows) for plane, rows in enumerate(odd_rows)]
        masks += [(8 << plane, columns * every_row) for plane, columns in enumerate(odd_columns)]
        self._weighed = [(weight, self._light_modules(mask)) for weight, mask in masks]

    def bit(self, row: int, column: int) -> int:
        """The place of a module; the quiet zone counts."""
        return self._start + self._stride * row + 2 * column

    def module(self, row: int, column: int) -> int:
        """The number to XOR with to turn over a module of the symbol."""
        return 1 << self.bit(row + _QUIET, column + _QUIET)

    def drawn(self, matrix: Iterable[Iterable[int]]) -> int:
        """The packed image of a symbol that segno made."""
        return self._light ^ sum(
            self.module(i, j) for i, row in enumerate(matrix) for j, dark in enumerate(row) if dark
        )

    def png(self, packed: int) -> bytes:
        light = self._light_modules(packed)
        count = light.bit_count()
        total = self._weight * count
        for weight, mask in self._weighed:
            total -= weight * (light & mask).bit_count()
        adler = (self._bytes + 255 * total) % 65521 << 16 | (1 + 255 * _SCALE * count) % 65521
        chunk = packed.to_bytes(self._size_bytes, "little") + adler.to_bytes(4, "big")
        return b"".join((self._head, chunk, zlib.crc32(chunk).to_bytes(4, "big"), _IEND))

    def _light_modules(self, packed: int) -> int:
        modules = packed & self._modules
        return (modules | modules >> self._fold) & self._folded


@cache
def _canvas(size: int) -> _Canvas:  # there are forty sizes
    return _Canvas(size)


def _deflate_parts(line_bytes: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """The header of a deflate block with our codes, and the copies that repeat a line seven times: numbers, widths."""
    repeated = (_SCALE - 1) * line_bytes
    count = next(n for n in range(1, _SCALE) if repeated % n == 0 and repeated // n < 258)
    long, far = repeated // count - 3, line_bytes - 1
    long_extra, far_extra = long.bit_length() - 3, far.bit_length() - 2
    copy, distance = 257 + 4 * long_extra + (long >> long_extra), 2 * far_extra + (far >> far_extra)
    one_copy = [(_COPY, 2), (long & (1 << long_extra) - 1, long_extra), (1, 1), (far & (1 << far_extra) - 1, far_extra)]
    # Two distances have a code, though only one is used: some decoders refuse a code that is not complete.
    header = [(0b101, 3), (copy - 256, 5), (distance, 5), (len(_LENGTH_ORDER) - 4, 4)]
    header += [(2 if symbol in _LENGTH_CODES else 0, 3) for symbol in _LENGTH_ORDER]
    coded = {0: 2, 0xFF: 2, 256: 2, copy: 2, copy + 1: 1, copy + 1 + distance: 1}  # symbol: length of its code
    for symbol, following in pairwise([*coded, copy + 2 + distance]):
        header.append((_LENGTH_CODES[coded[symbol]], 2))
        zeros = following - symbol - 1
        while zeros > 10:
            run = min(zeros, 138)
            header += [(_LENGTH_CODES[18], 2), (run - 11, 7)]
            zeros -= run
        header += [(_LENGTH_CODES[0], 2)] * zeros
    return _joined(header), _joined(one_copy * count)


def _joined(fields: Iterable[tuple[int, int]]) -> tuple[int, int]:
    """Bit fields (number, width) as one, the first lowest."""
    number = at = 0
    for value, width in fields:
        number |= value << at
        at += width
    return number, at


def _columns(canvas: _Canvas, version: int, level: str) -> Iterator[int]:
    """What each data bit of a symbol turns over in the packed image, in the order of the bits."""
    infos: list[tuple[int, int, int]] = _consts.ECC[version][_consts.ERROR_MAPPING[level]]
    blocks = [data for count, _, data in infos for _ in range(count)]
    checks = infos[0][1] - infos[0][2]  # the same in every block
    modules = _modules(canvas, version)
    remainders = _remainders(checks, max(blocks))
    # The codewords of the blocks stand interleaved in the symbol: first all data, then all checks.
    order = [(block, i) for i in range(max(blocks)) for block, length in enumerate(blocks) if i < length]
    places = {codeword: 8 * place for place, codeword in enumerate(order)}
    for block, length in enumerate(blocks):
        starts = [8 * (len(order) + i * len(blocks) + block) for i in range(checks)]
        checked = [module for start in starts for module in modules[start : start + 8]]
        for i in range(length):
            for bit in range(8):
                turned = map(int, f"{remainders[length - 1 - i][bit]:0{8 * checks}b}")
                yield reduce(_xor, compress(checked, turned), modules[places[block, i] + bit])


def _modules(canvas: _Canvas, version: int) -> list[int]:
    """The modules that carry codewords, in the order in which segno fills them."""
    size = 17 + 4 * version
    matrix: tuple[bytearray, ...] = _encoder.make_matrix(size, size)
    _encoder.add_finder_patterns(matrix, size, size)
    _encoder.add_alignment_patterns(matrix, size, size)
    # segno marks a free module with 2: instead of bits we let it place numbers from 3 on.
    numbered = [list(row) for row in matrix]
    free = sum(row.count(2) for row in numbered)
    _encoder.add_codewords(numbered, range(3, 3 + free), version)
    modules = [0] * (3 + free)
    for i, row in enumerate(numbered):
        for j, number in enumerate(row):
            modules[number] = canvas.module(i, j)
    return modules[3:]


def _remainders(checks: int, length: int) -> list[list[int]]:
    """The check bytes of each single bit of a codeword (highest first), by how many codewords follow in its block."""
    exp: list[int] = _consts.GALIOS_EXP
    powers: tuple[int, ...] = _consts.GEN_POLY[checks]
    logs: tuple[int, ...] = _consts.GALIOS_LOG
    multiples = [0, *(int.from_bytes(bytes(exp[logs[byte] + power] for power in powers)) for byte in range(1, 256))]
    remainders = [[multiples[0x80 >> bit] for bit in range(8)]]
    low = (1 << 8 * (checks - 1)) - 1
    while len(remainders) < length:  # one more codeword after it multiplies by x
        remainders.append([(number & low) << 8 ^ multiples[number >> 8 * (checks - 1)] for number in remainders[-1]])
    return remainders


def _table(columns: list[int]) -> dict[int, int]:
    """What each character of the alphabet turns over at a place of the token, from what the bits of a byte do there."""
    turned = [0]
    for column in reversed(columns):
        turned += [column ^ number for number in turned]
    return {character: turned[character] for character in _ALPHABET}
