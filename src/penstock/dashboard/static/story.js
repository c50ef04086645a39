"use strict";
// The first part of a report: what was run and what came out, with the queries side by side on one time axis.
(() => {
  const P = window.Penstock, make = P.make;
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  P.tellStory = (story, embedded) => {
    const cards = story.cards.map(([value, label, colour]) => { const big = make("div", { class: "value" }, value); if (colour) big.style.color = `var(${colour})`; return make("div", { class: "tile" }, big, make("div", { class: "label" }, label)); });
    const root = make("div", { class: "story" }, make("h1", {}, story.title), story.text.map((line) => make("p", {}, line)), make("div", { class: "tiles" }, cards));
    const plots = make("div", { class: "charts", id: "comparison" });
    root.append(make("div", { class: "bar" }), plots);
    for (const table of story.tables) {
      root.append(make("section", { class: "block" }, make("h2", {}, table.title), make("div", { class: "scroll" }, make("table", {},
        make("thead", {}, make("tr", {}, table.columns.map((name) => make("th", {}, name)))),
        make("tbody", {}, table.rows.map((row) => make("tr", {}, row.map((cell) => make("td", {}, cell))))))), table.note ? make("p", { class: "quiet" }, table.note) : null));
    }
    if (story.details.length) root.append(make("section", { class: "block" }, make("h2", {}, "How it was measured"), make("ul", {}, story.details.map((line) => make("li", {}, line)))));
    requestAnimationFrame(() => { for (const chart of story.charts) drawChart(plots, chart); });
    return root;
  };

  function drawChart(root, chart) {
    const holder = make("div", { class: "plot", role: "img", "aria-label": chart.title });
    root.append(make("section", { class: "chart wide" }, make("h2", {}, chart.title, make("small", {}, chart.hint || "")), holder));
    const format = { seconds: P.seconds, share: P.share, rows: (v) => P.rows(v) + " rows/s" }[chart.unit];
    const times = [...new Set(chart.series.flatMap((s) => s.t))].sort((a, b) => a - b);
    const columns = chart.series.map((s) => { const known = new Map(s.t.map((t, i) => [t, s.y[i]])); return times.map((t) => (known.has(t) ? known.get(t) : undefined)); });
    const axis = { stroke: css("--muted"), grid: { stroke: css("--line"), width: 1 }, ticks: { stroke: css("--line") }, font: "12px system-ui, 'DejaVu Sans', sans-serif" };
    const isLog = chart.log === true;
    const plot = new uPlot({
      width: Math.max(200, holder.clientWidth), height: chart.height || 220, cursor: { sync: { key: "story" }, drag: { x: true, y: false } },
      scales: { x: { time: false }, y: isLog ? { distr: 3 } : { range: (u, low, high) => [0, high > 0 ? high * 1.08 : 1] } },
      axes: [{ ...axis, values: (u, ticks) => ticks.map((tick) => `${tick} s`) }, { ...axis, size: 62, values: (u, ticks) => ticks.map((tick) => (tick === null ? "" : chart.unit === "rows" ? P.rows(tick) : format(tick))) }],
      series: [{ label: " ", value: (u, t) => (t === null ? "" : `at ${Number(t.toPrecision(4))} s`) }, ...chart.series.map((s) => ({
        label: s.label, stroke: css(s.colour), width: 2, dash: s.dash ? [7, 5] : undefined, spanGaps: true, fill: s.fill ? css(s.colour) + "26" : undefined, points: { show: s.t.length < 120 && !s.dash && !s.fill, size: 5 },
        paths: s.step ? uPlot.paths.stepped({ align: 1 }) : undefined, value: (u, v, i, at) => (at === null ? "" : v === null || v === undefined ? "–" : format(v)),
      }))],
    }, [times, ...columns], holder);
    new ResizeObserver(() => { const width = Math.max(200, holder.clientWidth); if (Math.abs(width - plot.width) > 1) plot.setSize({ width, height: chart.height || 220 }); }).observe(holder);
  }
})();
