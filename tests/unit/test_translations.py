"""Everything that a payer can read is translated, and says the same with the same things in it."""

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from babel.messages.catalog import Message

from tests.support.messages import CATALOGUES, CHECKOUT, read, wanted
from zembil.checkout.languages import AMHARIC, LANGUAGES

_PLACES = re.compile(r"%\(\w+\)[sd]|<[^>]+>")
_ETHIOPIC = re.compile("[\u1200-\u137f]")


def texts(message: Message) -> tuple[str, ...]:
    return (message.string,) if isinstance(message.string, str) else tuple(message.string or ())


def originals(message: Message) -> tuple[str, ...]:
    return (message.id,) if isinstance(message.id, str) else tuple(message.id)


def test_there_is_a_catalogue_for_every_language_but_english() -> None:
    assert {path.stem for path in CATALOGUES} == set(LANGUAGES) - {"en"}


@pytest.mark.parametrize("path", CATALOGUES, ids=lambda path: path.stem)
def test_every_sentence_is_translated_and_none_is_left_over(path: Path) -> None:
    catalogue = read(path)
    asked = {originals(message) for message in wanted() if message.id}
    given = {originals(message) for message in catalogue if message.id and all(texts(message))}
    assert len(asked) > 100
    assert asked - given == set()
    assert given - asked == set()
    assert [message.id for message in catalogue if message.fuzzy and message.id] == []


@pytest.mark.parametrize("path", CATALOGUES, ids=lambda path: path.stem)
def test_a_translation_holds_what_the_sentence_holds(path: Path) -> None:
    for message in read(path):
        if not message.id:  # the head of the file
            continue
        for original, text in zip(originals(message), texts(message), strict=True):
            assert sorted(_PLACES.findall(original)) == sorted(_PLACES.findall(text)), text
            assert _ETHIOPIC.search(text), text


def test_no_words_of_a_template_bypass_the_catalogues() -> None:
    """What is left of a template without its tags and expressions has no letters."""
    for template in sorted((CHECKOUT / "templates").glob("*.html")):
        text = template.read_text()
        text = re.sub(r"{#.*?#}|{% trans.*?endtrans %}|{%.*?%}|{{.*?}}", "", text, flags=re.DOTALL)
        words = re.sub(r"<pre.*?</pre>|<[^>]*>|&#?\w+;|[\w-]+=\"[^\"]*\"", "", text, flags=re.DOTALL)
        assert re.findall(r"[A-Za-z]+", words) in ([], ["PNG", "SVG"], ["OpenAPI"]), template.name
        labels = re.findall(r'(?:alt|title|aria-label|placeholder)="([^"]*)"', text)
        assert [label for label in labels if label] == [], template.name


def test_a_day_is_written_with_the_language_s_own_name_of_the_month() -> None:
    at = datetime(2026, 11, 21, 16, 7, tzinfo=UTC)
    assert LANGUAGES["en"].moment(at) == "21 November 2026, 16:07"
    assert AMHARIC.moment(at) == "21 ኖቬምበር 2026, 16:07"
