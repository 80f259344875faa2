"""Tables for spreadsheets: CSV (RFC 4180) that Excel opens as it is, and in which no text becomes a formula."""

import asyncio
import csv
from collections.abc import AsyncIterable, AsyncIterator, Callable, Sequence
from io import StringIO
from typing import TypeVar

from starlette.responses import StreamingResponse

Row = TypeVar("Row")

_ROWS_AT_ONCE = 100
# Excel takes a file without this mark for one of its old code pages, and Amharic for nonsense.
_MARK = "\N{ZERO WIDTH NO-BREAK SPACE}"
# With these a cell begins to calculate; the last four are the wide forms that some spreadsheets fold into the others.
_FORMULA_BEGINS = tuple("=+-@\t\r\n＝＋－＠")


def guarded(text: str | None) -> str:
    """A text that stays a text: spreadsheets show it without the apostrophe, and calculate nothing."""
    if text is None:
        return ""
    return "'" + text if text.startswith(_FORMULA_BEGINS) else text


def csv_lines(rows: Sequence[Sequence[str]]) -> str:
    """The rows as they stand in the file; cells of other people's words are to be guarded before."""
    written = StringIO()
    csv.writer(written, lineterminator="\r\n").writerows(rows)
    return written.getvalue()


def download(
    name: str, columns: Sequence[str], groups: AsyncIterable[Sequence[Row]], cells: Callable[[Row], Sequence[str]]
) -> StreamingResponse:
    """The file, sent group by group: however long it is, no more than one group is held."""

    async def parts() -> AsyncIterator[str]:
        yield _MARK + csv_lines([columns])
        async for group in groups:
            for start in range(0, len(group), _ROWS_AT_ONCE):
                yield csv_lines([cells(row) for row in group[start : start + _ROWS_AT_ONCE]])
                await asyncio.sleep(0)  # whoever waits for an answer comes first

    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return StreamingResponse(parts(), media_type="text/csv; charset=utf-8", headers=headers)
