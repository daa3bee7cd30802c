# SPDX-License-Identifier: Apache-2.0
"""Paragraphs of the pages of LibreOffice's help, for the scripts beside this one."""

import html.parser
import re

FOLDER = "usr/share/libreoffice/help"
VOID = {"br", "img", "hr", "input", "link", "meta", "col", "area", "base", "wbr"}


class Paragraphs(html.parser.HTMLParser):
    """The text of every element with an id that holds no other such element's text."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.found = {}
        self.open = []  # (tag, id or None, parts)

    def handle_starttag(self, tag, attributes):
        if tag in VOID:
            self.handle_data(" ")
            return
        self.open.append((tag, dict(attributes).get("id"), []))

    def handle_endtag(self, tag):
        while self.open:
            opened, name, parts = self.open.pop()
            text = "".join(parts)
            if name and name not in self.found and opened in {"p", "h1", "h2", "h3", "h4", "h5", "h6", "span"}:
                clean = " ".join(text.split())
                if clean:
                    self.found[name] = clean
            if self.open:
                self.open[-1][2].append(text)
            if opened == tag:
                return

    def handle_data(self, data):
        if self.open and self.open[-1][0] not in {"script", "style"}:
            self.open[-1][2].append(data)


def paragraphs(path):
    parser = Paragraphs()
    parser.feed(path.read_text(encoding="utf-8"))
    return parser.found


def sentences(text):
    return re.split(r"(?<=[.!?:])\s+(?=[\"„“'(]?[A-ZÄÖÜÀ-Þ])", text)
