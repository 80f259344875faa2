"""The languages of the payer's pages, and which of them a browser gets.

English is what stands in the code and the templates; the others are catalogues in locale/, read at the start.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from gettext import GNUTranslations, NullTranslations
from importlib.resources import files
from io import BytesIO

from babel.dates import format_datetime
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po

_RANGE = re.compile(r"\s*([A-Za-z]{1,8})(?:-[A-Za-z0-9-]*)?\s*(?:;\s*q\s*=\s*([01](?:\.[0-9]{0,3})?)\s*)?")
_RANGES_MAX = 20


@dataclass(frozen=True, slots=True)
class Language:
    """One language of the pages."""

    code: str  # as it stands in `lang`
    name: str  # as those who read it write it
    translations: NullTranslations

    def gettext(self, text: str) -> str:
        return self.translations.gettext(text)

    def ngettext(self, one: str, many: str, count: int) -> str:
        return self.translations.ngettext(one, many, count)

    def moment(self, at: datetime) -> str:
        """A day and a time of day, as this language writes them."""
        return format_datetime(at, "d MMMM y, HH:mm", locale=self.code)


def _catalogue(code: str) -> NullTranslations:
    """The catalogue of a language; what a translator left unsure is not used."""
    with files("zembil.checkout").joinpath("locale", f"{code}.po").open("rb") as written:
        catalogue = read_po(written, locale=code)
    compiled = BytesIO()
    write_mo(compiled, catalogue)
    compiled.seek(0)
    return GNUTranslations(compiled)


ENGLISH = Language("en", "English", NullTranslations())
AMHARIC = Language("am", "አማርኛ", _catalogue("am"))
LANGUAGES: Mapping[str, Language] = {language.code: language for language in (ENGLISH, AMHARIC)}


def language_for(asked: str | None, accepted: str) -> Language:
    """The language that `?lang=` names, else the one that Accept-Language likes best, else English."""
    if asked is not None and asked in LANGUAGES:
        return LANGUAGES[asked]
    liked = [found for found in map(_read, accepted.split(",")[:_RANGES_MAX]) if found is not None]
    return max(liked, key=_liking, default=(0.0, ENGLISH))[1]


def _read(part: str) -> tuple[float, Language] | None:
    found = _RANGE.fullmatch(part)
    language = LANGUAGES.get(found[1].lower()) if found else None
    quality = float(found[2]) if found and found[2] else 1.0
    return (quality, language) if language is not None and quality > 0 else None


def _liking(found: tuple[float, Language]) -> float:
    return found[0]
