"""Every sentence of the payer's pages, from code and templates; `make messages` puts new ones into the catalogues.

The catalogues are src/zembil/checkout/locale/*.po; English needs none.
"""

from pathlib import Path

from babel.messages.catalog import Catalog
from babel.messages.extract import extract_from_dir
from babel.messages.pofile import read_po, write_po

from zembil.payments.model import FAILURE_MESSAGES

CHECKOUT = Path(__file__).parents[2] / "src/zembil/checkout"
CATALOGUES = sorted((CHECKOUT / "locale").glob("*.po"))
_HEAD = b"# Not yet read by a native speaker, which has to happen before a release. See docs/payment-page.md.\n\n"
_METHODS = [("**.py", "python"), ("templates/**.html", "jinja2")]
_OPTIONS = {
    "templates/**.html": dict.fromkeys(("trim_blocks", "lstrip_blocks", "newstyle_gettext"), "true")
    | {"silent": "false"}
}


def wanted() -> Catalog:
    """What has to be translated."""
    catalogue = Catalog(project="Zembil", charset="utf-8")
    found = extract_from_dir(CHECKOUT, _METHODS, _OPTIONS)
    for file, line, message, comments, context in found:
        catalogue.add(message, locations=[(file, line)], auto_comments=comments, context=context)
    for message in FAILURE_MESSAGES.values():  # shown by their code, so no call names them
        catalogue.add(message, locations=[("../payments/model.py", 1)])
    return catalogue


def read(path: Path) -> Catalog:
    with path.open("rb") as written:
        return read_po(written, locale=path.stem)


def main() -> None:
    for path in CATALOGUES:
        catalogue = read(path)
        catalogue.update(wanted(), no_fuzzy_matching=True)
        with path.open("wb") as written:
            written.write(_HEAD)
            # Dates and addresses of translators would only change and say nothing; Babel knows a language's plurals.
            write_po(written, catalogue, width=120, include_lineno=False, ignore_obsolete=True, omit_header=True)


if __name__ == "__main__":
    main()
