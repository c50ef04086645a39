"use strict";
// The charts of one query: uPlot on the curves that the server makes, all on one time axis and with one cursor.
(() => {
  const P = window.Penstock;
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const axisSeconds = (u, ticks) => ticks.map((tick) => P.seconds(tick));
  const axisRows = (u, ticks) => ticks.map((tick) => P.rows(tick));
  const axisShare = (u, ticks) => ticks.map((tick) => Math.round(tick * 100) + "%");
  const value = (format) => (u, raw) => (raw === null || raw === undefined ? "–" : format(raw));
  const perSecond = (raw) => P.rows(raw) + " rows/s";
  const fromZero = (u, low, high) => [0, high > 0 ? high * 1.08 : 1];
  const rowsFromZero = (u, low, high) => [0, high > 0 ? Math.max(high * 1.08, 4) : 10];
  const FEW_POINTS = 25;  // a line through few points shows them; through one there is no line at all

  const line = (label, colour, format, more = {}) => ({
    label, stroke: () => css(colour), width: 2, points: { show: (u, i, from, to) => to - from < FEW_POINTS, size: 5 }, value: value(format), spanGaps: false, ...more,
  });
  const steps = () => uPlot.paths.stepped({ align: -1 });

  // Each chart: the curves it needs, and how they are drawn. A band lies between two of its series.
  P.chartKinds = [
    {
      name: "delay", title: "Delay", hint: "from the arrival of a row to the end of its batch", wide: true, height: 260,
      fields: ["delay_max", "delay_min", "delay", "target", "reachable"], axis: axisSeconds,
      series: () => [
        line("highest", "--accent", P.seconds, { width: 0, stroke: "transparent", points: { show: false } }),
        line("lowest", "--accent", P.seconds, { width: 0, stroke: "transparent", points: { show: false } }),
        line("mean delay", "--accent", P.seconds),
        line("target", "--target", P.seconds, { dash: [7, 5], paths: steps() }),
        line("held instead", "--overload", P.seconds, { dash: [2, 4], paths: steps() }),
      ],
      bands: () => [{ series: [1, 2], fill: () => css("--band") }], optional: ["reachable"], spread: ["delay_max", "delay_min"],
    },
    {
      name: "arrivals", title: "Arrivals and capacity", hint: "rows per second", height: 200,
      fields: ["arrivals", "kept_rate", "capacity"], axis: axisRows, range: rowsFromZero,
      series: () => [
        line("arrivals", "--arrivals", perSecond, { fill: () => css("--arrivals-fill") }),
        line("kept", "--accent", perSecond),
        line("capacity", "--capacity", perSecond, { dash: [7, 5], width: 1.5 }),
      ],
    },
    {
      name: "keep", title: "Keep", hint: "share of the rows that passed", height: 200, fields: ["keep"], axis: axisShare,
      range: () => [0, 1.04], series: () => [line("kept", "--accent", P.share, { fill: () => css("--band"), paths: steps() })],
    },
    {
      name: "shed", title: "Shed", hint: "rows per second, by reason", height: 200, fields: ["shed_rate", "expired_rate"], axis: axisRows, range: rowsFromZero,
      series: () => [
        line("shed in all", "--overload", perSecond, { fill: () => css("--overload") + "33" }),
        line("of those expired", "--expired", perSecond, { fill: () => css("--expired") + "44" }),
      ],
    },
    {
      name: "cost", title: "Cost as learnt", hint: "per row, and overhead per batch", height: 200, fields: ["cost_s", "overhead_s"], axis: axisSeconds,
      series: () => [line("per row", "--c4", P.seconds), line("overhead per batch", "--c5", P.seconds, { scale: "right" })],
      right: axisSeconds, rightRange: (u, low, high) => [0, high > 0 ? high * 1.9 : 1],
    },
    {
      name: "took", title: "Batch time", hint: "and what the target allows", height: 200, fields: ["took_s", "allowed_s"], axis: axisSeconds,
      series: () => [
        line("took", "--accent", P.seconds),
        line("allowed", "--target", P.seconds, { dash: [7, 5], width: 1.5, paths: steps() }),
      ],
    },
    {
      name: "backlog", title: "Waiting", hint: "rows that waited when a batch was planned", height: 200, fields: ["backlog"], axis: axisRows, range: rowsFromZero,
      series: () => [line("rows", "--c4", P.rows, { fill: () => css("--c4") + "22" })],
    },
  ];

  // Gates and classes have curves of their own; their names come with the data.
  const PART_COLOURS = ["--c1", "--c2", "--c3", "--c4", "--c5", "--c6", "--c7", "--c8"];
  P.partKinds = (parts, by, left) => {
    const keys = Object.keys(parts || {});
    if (!keys.length) return [];
    const some = left ? `; the ${keys.length} of ${keys.length + left} with the most rows` : "";
    const lines = (format, more) => () => keys.map((key, i) => line(P.make("span", { title: parts[key] }, parts[key]), PART_COLOURS[i % PART_COLOURS.length], format, more));
    return [
      { name: "part-keep", title: `Keep by ${by}`, hint: "share of the rows that passed" + some, height: 200, fields: keys.map((key) => "keep/" + key), axis: axisShare, range: () => [0, 1.04], series: lines(P.share, { paths: steps() }) },
      { name: "part-shed", title: `Shed by ${by}`, hint: "rows per second" + some, height: 200, fields: keys.map((key) => "shed/" + key), axis: axisRows, range: rowsFromZero, series: lines(perSecond, {}) },
    ];
  };
  const listKinds = (data) => { const at = P.chartKinds.findIndex((kind) => kind.name === "keep") + 1; return [...P.chartKinds.slice(0, at), ...P.partKinds(data.parts, data.parts_by, data.parts_left), ...P.chartKinds.slice(at)]; };

  const hasAny = (values) => !!values && values.some((value) => value !== null);

  P.Charts = class {
    constructor(root, onZoom) {
      this.root = root; this.onZoom = onZoom; this.plots = []; this.data = null; this.view = [0, 1];
      this.sizes = new ResizeObserver(() => this.resize());
      this.sizes.observe(root);
    }

    // Draws curves; the charts themselves are built again only where other curves are there than before.
    draw(data, view) {
      data.shed_rate = data.t.map((_, i) => {
        const overload = data.overload_rate[i], expired = data.expired_rate[i];
        return overload === null ? null : overload + (expired || 0);
      });
      this.data = data; this.view = view;
      const kinds = listKinds(data);
      const shape = JSON.stringify([data.parts, data.parts_by, data.parts_left]) + kinds.map((kind) => kind.fields.map((field) => (hasAny(data[field]) ? (this.isShown(kind, field) ? 2 : 1) : 0)).join("")).join("|");
      if (shape !== this.shape) this.build(shape);
      else for (const plot of this.plots) this.update(plot);
    }

    isShown(kind, field) {
      if ((kind.spread || []).includes(field)) return !this.data.is_exact;
      return hasAny(this.data[field]) || !(kind.optional || []).includes(field);
    }

    update(plot) {
      plot.u.setData(this.columns(plot.kind, plot.fields), false);
      plot.u.setScale("x", { min: this.view[0], max: this.view[1] });
      this.rest(plot.u);
    }

    rest(u) {  // without a cursor the legend shows the latest values
      const last = this.data.t.length - 1;
      if (last >= 0 && (u.cursor.left === undefined || u.cursor.left === null || u.cursor.left < 0)) u.setLegend({ idx: last }, false);
    }

    columns(kind, fields) { return [this.data.t, ...fields.map((field) => this.data[field])]; }

    build(shape) {
      this.clear();
      this.shape = shape;
      P.fill(this.root);
      for (const kind of listKinds(this.data)) {
        const holder = P.make("div", { class: "plot", tabindex: "0", role: "img", "aria-label": `${kind.title}: ${kind.hint}. Arrow keys move along the time axis.` });
        const card = P.make("section", { class: "chart" + (kind.wide ? " wide" : ""), "data-chart": kind.name },
          P.make("h2", {}, kind.title, P.make("small", {}, kind.hint)), holder);
        this.root.append(card);
        const shown = kind.fields.map((field) => this.isShown(kind, field));
        if (!kind.fields.some((field) => hasAny(this.data[field]))) {
          P.fill(holder, P.make("div", { class: "empty" }, this.data.t.length ? "The journal does not say." : this.data.batches_in_all ? "No batch in this time." : "No batch yet."));
          continue;
        }
        const fields = kind.fields.filter((_, i) => shown[i]);
        const plot = { kind, fields, holder };
        plot.u = new uPlot(this.options(kind, shown, holder), this.columns(kind, fields), holder);
        this.plots.push(plot);
        holder.addEventListener("keydown", (event) => this.key(plot, event));
      }
    }

    options(kind, shown, holder) {
      const series = kind.series().filter((_, i) => shown[i]);
      const grid = { stroke: () => css("--line"), width: 1 };
      const font = "12px system-ui, 'DejaVu Sans', sans-serif";
      const axis = { stroke: () => css("--muted"), grid, ticks: { ...grid, size: 4 }, font, gap: 4 };
      const axes = [{ ...axis, space: holder.clientWidth < 420 ? 54 : 70, size: 34, values: P.timeTicks }, { ...axis, size: 62, values: kind.axis, space: 36 }];
      const scales = { x: { time: true, range: () => this.view }, y: { range: kind.range || fromZero } };
      if (kind.right) {
        axes.push({ ...axis, size: 62, side: 1, scale: "right", values: kind.right, grid: { show: false }, space: 36 });
        scales.right = { range: kind.rightRange || fromZero };
      }
      return {
        width: Math.max(200, holder.clientWidth), height: kind.height, series: [{ label: " ", value: (u, t) => (t ? P.clock(t) : "") }, ...series],
        bands: kind.bands && !this.data.is_exact ? kind.bands() : [], axes, scales, padding: [10, kind.right ? 0 : 26, 0, 0],
        cursor: { sync: { key: "penstock" }, drag: { x: true, y: false, setScale: false }, points: { size: 6 }, focus: { prox: -1 }, bind: { dblclick: () => () => this.onZoom(null) } },
        legend: { live: true, markers: { fill: (u, i) => (u.series[i].width === 0 ? css("--band") : null) } },
        hooks: { setCursor: [(u) => this.rest(u)], ready: [(u) => this.rest(u)], setSelect: [(u) => {
          if (u.select.width < 6) return;
          const range = [u.posToVal(u.select.left, "x"), u.posToVal(u.select.left + u.select.width, "x")];
          u.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
          this.onZoom(range);
        }] },
      };
    }

    key(plot, event) {
      const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -20, PageDown: 20 }[event.key];
      if (step === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      const last = this.data.t.length - 1;
      const at = plot.u.cursor.idx === null || plot.u.cursor.idx === undefined ? last : plot.u.cursor.idx;
      const next = Math.min(last, Math.max(0, at + step));
      plot.u.setCursor({ left: plot.u.valToPos(this.data.t[next], "x"), top: plot.u.bbox.height / devicePixelRatio / 2 });
    }

    resize() {
      for (const plot of this.plots) {
        const width = Math.max(200, plot.holder.clientWidth);
        if (Math.abs(width - plot.u.width) > 1) plot.u.setSize({ width, height: plot.kind.height });
      }
    }

    recolour() { if (this.data) { const shape = this.shape; this.shape = null; this.build(shape); } }
    clear() { for (const plot of this.plots) plot.u.destroy(); this.plots = []; this.shape = null; }
  };

  // Clock times, with the date where it changes, as operators write them.
  P.timeTicks = (u, ticks, space, width, step) => {
    let day = "";
    return ticks.map((tick) => {
      const date = new Date(tick * 1000), two = (n) => String(n).padStart(2, "0");
      const today = `${two(date.getMonth() + 1)}-${two(date.getDate())}`;
      const clock = `${two(date.getHours())}:${two(date.getMinutes())}` + (step < 60 ? `:${two(date.getSeconds())}` : "");
      const isNew = today !== day && (day !== "" || step >= 3600);
      day = today;
      return step >= 86400 ? today : isNew ? `${clock}\n${today}` : clock;
    });
  };
})();
