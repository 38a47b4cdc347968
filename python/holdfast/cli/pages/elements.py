"""Elements of HTML and SVG. What comes from data becomes text of them, never markup."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterable
from typing import Final

from holdfast.cli.pages.style import STYLE
from holdfast.regions.base.printable import printable

Element = ET.Element

#: What an element may hold: other elements, text, and figures that are shown with separators.
Content = Element | str | int | None

#: A browser that keeps to it fetches nothing and runs nothing, whatever the page says.
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"

_SVG: Final = "http://www.w3.org/2000/svg"


def element(tag: str, *content: Content, **attributes: str | float) -> Element:
    """Return an element.

    Parameters
    ----------
    tag
        Its name.
    content
        What it holds; None is left out.
    attributes
        By name, where ``_`` stands for ``-``, and one at the end for nothing: ``class_``.
    """
    made = ET.Element(
        tag, {name.rstrip("_").replace("_", "-"): _value(v) for name, v in attributes.items()}
    )
    add(made, *content)
    return made


def add(to: Element, *content: Content) -> None:
    """Put more at the end of an element."""
    for one in content:
        if isinstance(one, ET.Element):
            to.append(one)
        elif one is not None:
            text = f"{one:,}" if isinstance(one, int) else printable(one)
            if len(to):
                to[-1].tail = (to[-1].tail or "") + text
            else:
                to.text = (to.text or "") + text


def _value(value: str | float) -> str:
    # Tenths of a pixel are enough, and the page stays small.
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else printable(str(value))


def svg(width: float, height: float, *content: Content, said: str, **attributes: str) -> Element:
    """Return a picture of so many pixels, and what it shows in words."""
    made = element("svg", *content, width=width, height=height, role="img", **attributes)
    made.set("viewBox", f"0 0 {width:g} {height:g}")
    made.set("aria-label", printable(said))
    return made


def page(title: str, content: Iterable[Element]) -> str:
    """Return a whole document that needs nothing outside itself."""
    head = element("head", element("meta", charset="utf-8"))
    add(
        head,
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", title),
        _style(),
    )
    body = element("body", element("main", *content))
    text = ET.tostring(element("html", head, body, lang="en"), encoding="unicode", method="html")
    return f"<!doctype html>\n{text}\n"


def svg_file(picture: Element) -> str:
    """Return a picture as a file of its own, with the style of pages."""
    picture.set("xmlns", _SVG)
    picture.insert(0, _style())
    return ET.tostring(picture, encoding="unicode") + "\n"


def _style() -> Element:
    made = ET.Element("style")
    made.text = STYLE
    return made
