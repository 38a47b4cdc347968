"""The style of pages: light and dark, in colours that all can tell apart.

Colours follow Okabe and Ito, *Color Universal Design* (2008). No fact is told by a colour alone: an
outcome has a pattern and a word beside it.
"""

from __future__ import annotations

from typing import Final

STYLE: Final = """
:root {
  --page: #ffffff; --panel: #f4f6f8; --text: #1b1f24; --muted: #57606a; --line: #d0d7de;
  --blue: #0072b2; --orange: #c27c00; --red: #b3123f; --grey: #aab2bb; --green: #00795a;
  --violet: #8f4f86; --sky: #9bd0f5;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #14171b; --panel: #1e2329; --text: #e6e8eb; --muted: #a0a9b4; --line: #3a414a;
    --blue: #4aa8e0; --orange: #f0b429; --red: #ff6f91; --grey: #69727d; --green: #2fbf96;
    --violet: #d79bcd; --sky: #d3ebfc;
  }
}
body, svg { font: 14px/1.5 system-ui, "Open Sans", "Segoe UI", Helvetica, Arial, sans-serif; }
body { margin: 0; background: var(--page); color: var(--text); }
main { max-width: 1100px; margin: 0 auto; padding: 24px 20px 64px; }
h1 { font-size: 24px; line-height: 1.25; margin: 0 0 4px; overflow-wrap: anywhere; }
h2 { font-size: 18px; margin: 36px 0 6px; }
h3 { font-size: 15px; margin: 24px 0 4px; }
p { margin: 4px 0 10px; max-width: 80ch; }
p, li { overflow-wrap: anywhere; }
.muted { color: var(--muted); }
code { font-family: ui-monospace, "DejaVu Sans Mono", monospace; font-size: 13px; }
.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(132px, 1fr)); gap: 10px;
  margin: 16px 0; }
.facts div { background: var(--panel); border-radius: 6px; padding: 8px 12px; }
.facts dt { color: var(--muted); font-size: 12px; }
.facts dd { margin: 0; font-size: 17px; font-variant-numeric: tabular-nums;
  overflow-wrap: anywhere; }
.facts dd small { display: block; font-size: 12px; color: var(--muted); }
.wrong { border-left: 4px solid var(--red); background: var(--panel); padding: 8px 14px; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; }
th, td { padding: 3px 10px; text-align: right; vertical-align: top; white-space: nowrap;
  border-bottom: 1px solid var(--line); }
th { color: var(--muted); font-weight: 600; vertical-align: bottom; }
.word { text-align: left; }
td.long { white-space: normal; overflow-wrap: anywhere; min-width: 30ch; max-width: 60ch; }
th:first-child, td:first-child { padding-left: 0; }
td svg { display: block; margin-top: 4px; }
figure { margin: 14px 0 22px; }
figcaption { color: var(--muted); font-size: 12px; max-width: 110ch; overflow-wrap: anywhere; }
details { margin: 8px 0; }
summary { cursor: pointer; color: var(--muted); }
.legend { display: flex; flex-wrap: wrap; gap: 4px 20px; margin: 8px 0; padding: 0;
  list-style: none; color: var(--muted); font-size: 13px; }
.legend svg { vertical-align: -2px; margin-right: 6px; }
svg { max-width: none; }
svg text { fill: var(--text); font-size: 12px; }
svg .quiet { fill: var(--muted); }
svg .right { text-anchor: end; }
svg .middle { text-anchor: middle; }
svg .axis { stroke: var(--line); stroke-width: 1; fill: none; }
svg .restart { stroke: var(--muted); stroke-width: 1; stroke-dasharray: 2 3; }
svg .panel { fill: var(--page); }
.blue { fill: var(--blue); } .orange { fill: var(--orange); } .red { fill: var(--red); }
.grey { fill: var(--grey); } .green { fill: var(--green); } .violet { fill: var(--violet); }
.sky { fill: var(--sky); stroke: var(--blue); stroke-width: 0.5; }
svg .hollow { fill: var(--page); stroke: var(--red); stroke-width: 1.5; }
svg .cross { stroke: var(--red); stroke-width: 1.5; fill: none; }
svg .notch { stroke: var(--page); stroke-width: 1.5; fill: none; }
svg .median { stroke: var(--text); stroke-width: 2; }
svg .dot { fill-opacity: 0.65; stroke: var(--page); stroke-width: 0.8; }
svg .path { fill: none; stroke-width: 1.6; }
"""
