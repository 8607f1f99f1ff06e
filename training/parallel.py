"""Step 2: gather sentences in English and another language from Debian's LibreOffice packages.

    apt-get download libreoffice-l10n-LANG libreoffice-help-LANG libreoffice-help-en-us
    python -m training.parallel FOLDER_OF_DEBS .train/parallel.jsonl.gz

Interface strings come from gettext catalogues, help paragraphs are matched by their ids.
"""

from __future__ import annotations

import argparse
import gettext
import gzip
import html
import json
import random
import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

PER_LANGUAGE = 20_000
MIN_CHARS, MAX_CHARS = 12, 400
PARAGRAPH = re.compile(r'<(p|h\d) id="([\w.]+)"[^>]*>(.*?)</\1>', re.DOTALL)


def unpack(debs: Path, target: Path) -> None:
    """Unpack every LibreOffice package found in `debs`."""
    for deb in sorted(debs.glob("libreoffice-*.deb")):
        subprocess.run(["dpkg-deb", "-x", str(deb), str(target)], check=True)


def interface_pairs(root: Path, lang: str) -> Iterator[tuple[str, str]]:
    """Yield (English, translation) from the message catalogues of one language."""
    for path in sorted((root / "usr/lib/libreoffice/program/resource").glob(f"{lang}/**/*.mo")):
        with path.open("rb") as stream:
            catalogue = gettext.GNUTranslations(stream)._catalog
        for key, value in catalogue.items():
            if isinstance(key, str) and isinstance(value, str) and key:
                yield clean(key.split("\x04")[-1]), clean(value)


def help_paragraphs(root: Path, lang: str) -> dict[str, str]:
    """Return the help's paragraphs by page and id."""
    base = root / "usr/share/libreoffice/help" / lang / "text"
    found = {}
    for page in sorted(base.glob("**/*.html")):
        text = page.read_text(encoding="utf-8", errors="ignore")
        for _, ident, body in PARAGRAPH.findall(text):
            found[f"{page.relative_to(base)}#{ident}"] = clean(body)
    return found


def clean(text: str) -> str:
    """Drop tags, accelerators and line breaks."""
    text = html.unescape(re.sub(r"<[^>]+>", " ", text)).replace("~", "").replace("_", "")
    return re.sub(r"\s+", " ", text).strip()


def main() -> None:
    """Write pairs of every language found, shuffled with a fixed seed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("debs", type=Path)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    rng = random.Random(0)
    rows: list[tuple[str, str, str]] = []
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        unpack(options.debs, root)
        english = help_paragraphs(root, "en-US")
        languages = sorted(
            p.name for p in (root / "usr/lib/libreoffice/program/resource").iterdir()
        )
        for lang in languages:
            code = lang.replace("_", "-")
            pairs = set(interface_pairs(root, lang))
            other = help_paragraphs(root, code)
            pairs |= {(english[k], other[k]) for k in other.keys() & english.keys()}
            kept = sorted(
                (en, xx)
                for en, xx in pairs
                if MIN_CHARS <= len(en) <= MAX_CHARS and len(xx) >= 4 and en != xx
            )
            rng.shuffle(kept)
            rows += [(code.split("-")[0], en, xx) for en, xx in kept[:PER_LANGUAGE]]
            print(f"{code}: {len(kept)} found")
    rng.shuffle(rows)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(options.out, "wt", encoding="utf-8") as stream:
        for lang, en, xx in rows:
            stream.write(json.dumps([lang, en, xx], ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
