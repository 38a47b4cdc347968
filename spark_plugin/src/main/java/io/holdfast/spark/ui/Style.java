package io.holdfast.spark.ui;

/**
 * The tab's style on top of Spark's own, light or dark. People with any colour vision can tell the
 * colours apart (Okabe and Ito, <i>Color Universal Design</i>, 2008).
 */
final class Style {
  static final String ELEMENT =
      """
      <style>
      .hf-tab { --hf-blue: #0072b2; --hf-sky: #9bd0f5; --hf-orange: #c27c00; --hf-red: #b3123f;
        --hf-line: #d0d7de; --hf-muted: #57606a; --hf-panel: #f4f6f8; }
      [data-bs-theme="dark"] .hf-tab { --hf-blue: #4aa8e0; --hf-sky: #d3ebfc; --hf-orange: #f0b429;
        --hf-red: #ff6f91; --hf-line: #3a414a; --hf-muted: #a0a9b4; --hf-panel: #2b3138; }
      .hf-tab p { max-width: 100ch; }
      .hf-tab .hf-quiet { color: var(--hf-muted); margin: 0; }
      .hf-tab .hf-facts { display: flex; flex-wrap: wrap; gap: 8px; margin: 8px 0 16px; }
      .hf-tab .hf-facts div { background: var(--hf-panel); border-radius: 6px; padding: 6px 14px; }
      .hf-tab .hf-facts dt { color: var(--hf-muted); font-weight: 400; font-size: 12px; }
      .hf-tab .hf-facts dd { margin: 0; font-size: 17px; font-variant-numeric: tabular-nums;
        overflow-wrap: anywhere; }
      .hf-tab .hf-facts small { display: block; font-size: 12px; color: var(--hf-muted); }
      .hf-tab .hf-wrong { border-left: 4px solid var(--hf-red); padding: 6px 14px;
        background: var(--hf-panel); overflow-wrap: anywhere; }
      .hf-tab .hf-wide { overflow-x: auto; }
      .hf-tab .hf-table { width: auto; font-variant-numeric: tabular-nums; }
      .hf-tab .hf-table th, .hf-tab .hf-table td { text-align: right; white-space: nowrap;
        padding: 3px 7px; vertical-align: top; }
      .hf-tab .hf-table th { vertical-align: bottom; white-space: normal; }
      .hf-tab .hf-table .hf-word { text-align: left; }
      .hf-tab .hf-table .hf-long { white-space: normal; overflow-wrap: anywhere; min-width: 30ch;
        max-width: 70ch; }
      .hf-tab .hf-charts { display: grid; gap: 18px 36px; margin: 10px 0 16px;
        grid-template-columns: repeat(auto-fill, minmax(320px, 1fr)); }
      .hf-tab .hf-chart { margin: 0; max-width: 480px; }
      .hf-tab .hf-chart figcaption { font-weight: 600; }
      .hf-tab .hf-chart > svg { width: 100%; display: block; }
      .hf-tab .hf-chart p { font-size: 12px; }
      .hf-tab text { fill: var(--hf-muted); font-size: 11px; }
      .hf-tab .hf-end { text-anchor: end; }
      .hf-tab .hf-axis { stroke: var(--hf-line); fill: none; }
      .hf-tab .hf-column { fill: transparent; }
      .hf-tab g:hover > .hf-column { fill: var(--hf-line); fill-opacity: 0.5; }
      .hf-tab rect.hf-blue { fill: var(--hf-blue); }
      .hf-tab rect.hf-sky { fill: var(--hf-sky); }
      .hf-tab rect.hf-orange { fill: var(--hf-orange); }
      .hf-tab rect.hf-red { fill: var(--hf-red); }
      .hf-tab .hf-legend { display: flex; flex-wrap: wrap; gap: 2px 20px; padding: 0; margin: 4px 0;
        list-style: none; color: var(--hf-muted); font-size: 12px; }
      </style>
      """;

  private Style() {}
}
