"""The style of the pages, for light and dark screens."""

CSS = """
:root { color-scheme: light dark; --page: #fbfbfa; --card: #fff; --ink: #1d2127;
  --soft: #626b77; --line: #dfe2e6; --grid: #e9ebee; --inside: #4a7ab5;
  --across: #d9730d; --latency: #9aa4b1; --own: #eef4fb; }
@media (prefers-color-scheme: dark) {
  :root { --page: #15181c; --card: #1d2126; --ink: #e6e8eb; --soft: #9aa4b1;
    --line: #343a42; --grid: #2a2f36; --inside: #7fb0e8; --across: #f0a04b;
    --latency: #737d8a; --own: #22303f; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, "Segoe UI", Roboto, Helvetica, Arial, sans-serif; }
main { max-width: 1040px; margin: 0 auto; padding: 32px 20px 64px; }
h1 { font-size: 26px; margin: 0 0 4px; overflow-wrap: anywhere; }
h2 { font-size: 17px; margin: 0 0 12px; }
code { font-family: ui-monospace, "DejaVu Sans Mono", Menlo, monospace;
  font-size: 0.93em; }
.lead { color: var(--soft); margin: 0 0 20px; overflow-wrap: anywhere; }
.note, .legend, small { color: var(--soft); font-size: 13px; }
.note, .legend { margin: 8px 0; }
section { background: var(--card); border: 1px solid var(--line);
  border-radius: 10px; padding: 18px 20px; margin: 16px 0; }
.cards { display: grid; gap: 12px;
  grid-template-columns: repeat(auto-fit, minmax(200px, 1fr)); }
.cards div { background: var(--card); border: 1px solid var(--line);
  border-radius: 10px; padding: 12px 16px; display: grid;
  align-content: start; }
.cards span { color: var(--soft); font-size: 13px; }
.cards b { font-size: 22px; font-weight: 600; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
th { text-align: left; color: var(--soft); font-weight: 500; font-size: 13px; }
th, td { padding: 6px 10px 6px 0; border-bottom: 1px solid var(--line);
  vertical-align: top; overflow-wrap: break-word; }
td:last-child { min-width: 180px; }
.n { text-align: right; white-space: nowrap;
  font-variant-numeric: tabular-nums; }
.key { display: inline-flex; align-items: center; gap: 5px;
  margin: 0 12px 0 0; white-space: nowrap; color: var(--ink); }
.key i { width: 14px; height: 12px; border-radius: 2px; display: inline-block; }
.key i.line { height: 0; width: 20px; border-top: 3px solid; border-radius: 0; }
i.line.inside { border-color: var(--inside); }
i.line.across { border-color: var(--across); }
.latency { background: var(--latency); }
.within { background: var(--inside); }
.between { background: var(--across); }
.way { display: grid; grid-template-columns: minmax(90px, 300px) 1fr 160px;
  gap: 12px; align-items: center; padding: 4px 8px; border-radius: 6px; }
@media (max-width: 700px) {
  .way { grid-template-columns: 1fr auto; gap: 2px 12px; }
  .way .bar { grid-row: 2; grid-column: 1 / 3; } }
.way code { overflow-wrap: anywhere; font-size: 13px; }
.way.own { background: var(--own); font-weight: 600; }
.way span { font-variant-numeric: tabular-nums; font-size: 14px; }
.bar { display: flex; height: 14px; border-radius: 3px; overflow: hidden; }
.bar.cut { mask-image: linear-gradient(90deg, #000 88%, transparent); }
svg { display: block; width: 100%; height: auto; }
svg text { font: 11.5px system-ui, "Segoe UI", Roboto, Arial, sans-serif;
  fill: var(--soft); }
svg .tick, svg .column, svg .band, svg .few { text-anchor: middle; }
svg .end, svg .lane { text-anchor: end; }
svg .band, svg .lane { fill: var(--ink); font-weight: 600; }
svg .few { font-size: 10px; }
svg .grid { stroke: var(--grid); }
svg .curve { fill: none; stroke-width: 2.2; stroke-linejoin: round; }
svg .count { fill: var(--soft); opacity: 0.75; }
svg .worker { fill: none; stroke: var(--line); }
svg .vector { fill: none; stroke: var(--soft); stroke-width: 0.7; }
svg .engine { fill: none; stroke: var(--inside); stroke-dasharray: 4 3; }
svg .arrow { fill: none; stroke-width: 1.5; opacity: 0.85; }
svg .arrow.inside { stroke: var(--inside); }
svg .arrow.across { stroke: var(--across); }
svg .head.inside { fill: var(--inside); }
svg .head.across { fill: var(--across); }
svg rect.within { fill: var(--inside); }
svg rect.between { fill: var(--across); }
svg rect.latency { fill: var(--latency); }
"""
