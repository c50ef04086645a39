"use strict";
// The page: chooses a query, follows it, and shows it. Data comes from the server, or from the page itself in a report.
(() => {
  const P = window.Penstock, make = P.make, fill = P.fill;
  const $ = (id) => document.getElementById(id);
  const RANGES = [["5 min", 300], ["15 min", 900], ["1 h", 3600], ["6 h", 21600], ["1 day", 86400], ["1 week", 604800], ["all", Infinity]];
  const POINTS = 700, MOST_POINTS = 2400, MANY = 10;
  const embedded = (() => { const node = $("data"); return node ? JSON.parse(node.textContent) : null; })();
  const state = { overview: null, chosen: null, detail: null, curves: null, range: 1, zoom: null, offset: 0, stream: null, asked: 0, filter: "", isFresh: true };
  const hashed = () => { try { return decodeURIComponent(location.hash.slice(1)); } catch (error) { return ""; } };
  const now = () => Date.now() / 1000 + state.offset;

  // -- data ------------------------------------------------------------------------------------------------------------
  async function ask(path) {
    const answer = await fetch(path, { credentials: "same-origin", cache: "no-store" });
    if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
    return answer.json();
  }
  const askOverview = async () => (embedded ? embedded.overview : ask("api/overview"));
  const askDetail = async (id) => (embedded ? embedded.details[id] : ask(`api/queries/${id}`));
  async function askCurves(id) {
    if (embedded) return structuredClone(embedded.curves[id]);
    const [since, until] = span();
    const query = new URLSearchParams({ points: POINTS });
    if (isFinite(since)) query.set("since", since);
    if (state.zoom) query.set("until", until);
    return ask(`api/queries/${id}/curves?${query}`);
  }

  function span() {  // what the time axis shows
    const summary = state.detail ? state.detail.summary : {};
    if (state.zoom) return state.zoom;
    const end = state.detail && state.detail.state === "running" && !embedded ? Math.max(now(), summary.last_s || 0) : summary.last_s || now();
    const start = Math.max(end - RANGES[state.range][1], summary.first_s || -Infinity);
    return [isFinite(start) ? Math.min(start, end - 10) : end - 10, end];
  }

  async function choose(id, { push = true } = {}) {
    state.chosen = id; state.zoom = null; state.detail = null; state.curves = null;
    if (push) history.replaceState(null, "", "#" + encodeURIComponent(id));
    renderSide();
    try { if (isQuery(id)) await load(id); } catch (error) { showConnection("lost"); }
    if (state.chosen !== id) return;
    render();
    if (!embedded) connect();
    const view = state.overview.queries.find((q) => q.id === id);
    $("announce").textContent = view ? `Showing ${view.name}` : "";
  }
  const isQuery = (id) => state.overview.queries.some((query) => query.id === id);

  async function load(id) {
    const asked = ++state.asked;
    const detail = await askDetail(id);
    if (asked !== state.asked) return;
    state.detail = detail;
    const curves = await askCurves(id);
    if (asked !== state.asked) return;
    state.curves = curves;
    state.isFresh = true;
  }

  async function reload() {
    if (!state.chosen || !isQuery(state.chosen)) return;
    try { await load(state.chosen); render(); } catch (error) { showConnection("lost"); }
  }

  // -- live ------------------------------------------------------------------------------------------------------------
  function connect() {
    if (state.stream) state.stream.close();
    const stream = new EventSource(`api/events?query=${encodeURIComponent(state.chosen || "")}`);
    state.stream = stream;
    let wasLost = false;
    stream.onopen = () => { showConnection("live"); if (wasLost || (state.chosen && isQuery(state.chosen) && !state.detail)) { wasLost = false; refresh(); } };
    stream.onerror = () => { wasLost = true; showConnection("lost"); if (stream.readyState === EventSource.CLOSED) setTimeout(() => { if (state.stream === stream) connect(); }, 1500); };
    stream.addEventListener("overview", (event) => { showConnection("live"); takeOverview(JSON.parse(event.data)); });
    stream.addEventListener("query", (event) => { showConnection("live"); takeTick(JSON.parse(event.data)); });
  }
  async function refresh() {
    try { takeOverview(await askOverview()); await reload(); } catch (error) { showConnection("lost"); }
  }
  function takeOverview(overview) {
    state.overview = overview;
    state.offset = overview.now_s - Date.now() / 1000;
    renderSide();
    if (!state.chosen) chooseFirst();
    else if (!isQuery(state.chosen)) render();
  }
  function takeTick(tick) {
    if (!state.detail || tick.id !== state.detail.id) return;
    const known = new Map(state.detail.decisions.map((d) => [`${d.batch}/${d.slot}`, d]));
    for (const decision of tick.decisions) known.set(`${decision.batch}/${decision.slot}`, decision);
    const decisions = [...known.values()].sort((a, b) => (b.batch ?? b.slot) - (a.batch ?? a.slot)).slice(0, 30);
    state.detail = { ...state.detail, ...tick, decisions };
    if (!state.zoom && state.curves) merge(state.curves, tick.points);
    if (state.curves && state.curves.t.length > MOST_POINTS) reload(); else render();
  }
  function merge(curves, points) {  // by batch: a later line of the journal replaces an earlier one
    const fields = Object.keys(curves).filter((name) => Array.isArray(curves[name]));
    points.t.forEach((time, i) => {
      let at = curves.t.length - 1;
      while (at >= 0 && at > curves.t.length - 12 && curves.batch[at] !== points.batch[i]) at--;
      const isThere = at >= 0 && curves.batch[at] === points.batch[i];
      if (!isThere) { at = curves.t.length; if (at && time <= curves.t[at - 1]) return; curves.batches++; }
      for (const name of fields) curves[name][at] = points[name] ? points[name][i] : null;
      curves.t[at] = time;
    });
  }
  function showConnection(kind) {
    const pill = $("connection"), names = { live: "live", lost: "connection lost, trying again", report: "report" };
    pill.className = "pill " + kind; pill.textContent = names[kind];
  }

  // -- what is shown -----------------------------------------------------------------------------------------------------
  const isLate = (q) => q.delay_s !== null && q.target_s !== null && q.delay_s > (q.reachable_s ?? q.target_s) * 1.05;
  const facts = (q) => [q.delay_s === null ? "no delay yet" : P.seconds(q.delay_s), q.keep === null ? "" : `keeps ${P.share(q.keep)}`].filter(Boolean).join(" · ");

  const isWanted = (q) => !state.filter || q.name.toLowerCase().includes(state.filter.toLowerCase());
  function entries() {
    const { queries, networks } = state.overview;
    const list = [];
    if (embedded && embedded.story) list.push({ id: "story", name: embedded.story.name, group: "Report" });
    if (queries.length > 1) list.push({ id: "all", name: "All queries", group: "Overview" });
    for (const network of networks) list.push({ id: network.id, name: `Network ${network.name}`, group: "Overview" });
    for (const query of queries) if (isWanted(query)) list.push({ id: query.id, name: query.name, group: "Queries", query });
    return list;
  }
  function renderSide() {
    const focused = document.activeElement && document.activeElement.dataset ? document.activeElement.dataset.go : null;
    const parts = [];
    let group = null;
    for (const entry of entries()) {
      if (entry.group !== group) { group = entry.group; parts.push(make("h2", {}, group)); }
      const q = entry.query;
      parts.push(make("button", { type: "button", "data-go": entry.id, "aria-current": entry.id === state.chosen ? "true" : null, onclick: () => choose(entry.id) },
        make("span", { class: "name", title: entry.name }, q ? make("span", { class: `dot ${q.state}`, title: q.state }) : null, make("span", { class: "clamp" }, entry.name)),
        q ? make("span", { class: "facts" + (isLate(q) ? " late" : "") }, facts(q)) : null));
    }
    fill($("side"), parts);
    if (focused) { const again = [...$("side").querySelectorAll("button")].find((b) => b.dataset.go === focused); if (again) again.focus(); }
    $("filter").hidden = state.overview.queries.length < MANY;
    const select = $("pick");
    const names = JSON.stringify(entries().map((entry) => [entry.id, entry.name]));
    if (select.dataset.names !== names) {
      select.dataset.names = names;
      fill(select, entries().map((entry) => make("option", { value: entry.id }, entry.name)));
    }
    if (state.chosen) select.value = state.chosen;
  }

  let charts = null, drawn = null;
  function render() {
    const id = state.chosen, root = $("content");
    if (!state.overview) return;
    if (id === "story") { leave(); fill(root, P.tellStory(embedded.story, embedded)); afterStory(); return; }
    if (!isQuery(id)) { leave(); inPlace(root, () => fill(root, id === "all" ? renderAll() : renderNetwork(id))); return; }
    if (!state.detail) return;
    if (drawn !== id) build(root, id);
    inPlace(root, renderDetail);
    if (state.curves) charts.draw(Object.assign(state.curves, { batches_in_all: state.detail.summary.batches }), span());
  }
  // What is shown changes every second; what a person has scrolled to, or has the focus on, stays.
  function inPlace(root, change) {
    const boxes = () => [...root.querySelectorAll(".scroll, .net, ol.decisions")];
    const active = root.contains(document.activeElement) ? document.activeElement.dataset.spot : undefined;
    const spots = boxes().map((box) => [box.scrollLeft, box.scrollTop]);
    change();
    boxes().forEach((box, i) => { if (spots[i]) [box.scrollLeft, box.scrollTop] = spots[i]; });
    const again = active === undefined ? null : [...root.querySelectorAll("[data-spot]")].find((one) => one.dataset.spot === active);
    if (again && again !== document.activeElement) again.focus({ preventScroll: true });
  }
  function leave() { if (charts) { charts.clear(); charts.sizes.disconnect(); charts = null; } drawn = null; }

  function build(root, id) {
    leave();
    drawn = id;
    const ranges = make("div", { class: "ranges", role: "group", "aria-label": "time shown" }, RANGES.map(([name], i) =>
      make("button", { type: "button", "aria-pressed": String(i === state.range && !state.zoom), onclick: () => setRange(i) }, name)));
    fill(root, make("div", { id: "head" }), make("div", { id: "why", class: "why", role: "status" }), make("div", { id: "tiles", class: "tiles" }),
      make("div", { class: "bar" }, ranges, make("span", { id: "resolution", class: "hint" }), make("span", { class: "hint keys" }, "Drag to zoom, ? for keys")),
      make("div", { id: "charts", class: "charts" }),
      make("div", { class: "pair" }, make("section", { class: "block", id: "decisions" }), make("section", { class: "block", id: "notes" })),
      make("section", { class: "block", id: "gates" }));
    charts = new P.Charts($("charts"), zoom);
  }
  async function setRange(i) {
    state.range = i; state.zoom = null;
    try { localStorage.setItem("penstock-range", i); } catch (error) { /* a private window */ }
    markRanges();
    if (embedded) render(); else await reload();
  }
  async function zoom(range) {
    state.zoom = range;
    markRanges();
    if (embedded) render(); else await reload();
  }
  const markRanges = () => document.querySelectorAll(".ranges button").forEach((b, i) => b.setAttribute("aria-pressed", String(i === state.range && !state.zoom)));

  function renderDetail() {
    const d = state.detail, s = d.summary;
    const view = state.overview.queries.find((q) => q.id === d.id) || {};
    const last = s.last_s === null ? "no batch yet" : d.state === "running" ? "running" : embedded ? "" : `last batch ${P.ago(Math.max(0, now() - s.last_s))}`;
    fill($("head"), make("h1", {}, d.name, last ? make("span", { class: "pill" + (d.state === "running" ? " live" : d.state === "lost" ? " lost" : "") }, last) : null),
      make("p", { class: "where" }, [d.location, d.how && `decided ${d.how}`, d.controller, view.node && `node ${view.node}`].filter(Boolean).join(" · ")));
    renderWhy(d, s);
    renderTiles(s);
    $("resolution").textContent = !state.curves || !state.curves.batches ? "" : state.curves.is_exact ? `every batch of ${P.rows(state.curves.batches)}` : `${P.rows(state.curves.batches)} batches in ${P.rows(state.curves.t.length)} points: mean, lowest and highest`;
    renderDecisions(d);
    fill($("notes"), make("h2", {}, "Notes"), d.notes.length ? make("ul", { class: "notes" }, [...d.notes].reverse().map((line) => make("li", {}, line))) : make("p", { class: "quiet" }, "Nothing to tell."));
    renderGates(s);
  }
  function renderWhy(d, s) {
    const late = isLate(s), last = d.decisions[0], keep = last ? last.keep : s.keep, shedding = keep !== null && keep < 0.9995;
    const box = $("why");
    box.className = "why" + (s.batches === 0 ? " waiting" : late ? " late-now" : shedding ? " shedding" : "");
    const headline = s.batches === 0 ? "Waiting for the first batch." : shedding ? `Shedding ${P.share(1 - keep)} of the rows.` : "Keeping everything.";
    const target = s.delay_s === null || s.target_s === null ? "" : late ? ` The delay of ${P.seconds(s.delay_s)} is above ${s.reachable_s ? `${P.seconds(s.reachable_s)}, which is held instead of the target of ${P.seconds(s.target_s)}` : `the target of ${P.seconds(s.target_s)}`}.` : "";
    const reason = last ? ` ${last.reason[0].toUpperCase()}${last.reason.slice(1)}.` : "";
    fill(box, make("b", {}, headline), reason + target);
  }
  function renderTiles(s) {
    const tile = (label, value, note, extra = "") => make("div", { class: "tile" }, make("div", { class: "label" }, label), make("div", { class: "value" + extra }, value), make("div", { class: "note" }, note || "\u00a0"));
    fill($("tiles"),
      tile("Delay", P.seconds(s.delay_s), s.target_s === null ? (s.batches ? "no target" : "no batch yet") : s.reachable_s ? `target ${P.seconds(s.target_s)}, held ${P.seconds(s.reachable_s)}` : `target ${P.seconds(s.target_s)}`, isLate(s) ? " late" : ""),
      tile("Keep", P.share(s.keep), "of recent rows"),
      tile("Arrivals", s.arrivals === null ? "–" : P.rows(s.arrivals) + "/s", s.capacity === null ? "capacity unknown" : `capacity ${P.rows(s.capacity)}/s`),
      tile("Cost", P.seconds(s.cost_s), s.overhead_s === null ? "per row" : `per row, ${P.seconds(s.overhead_s)} per batch`),
      tile("Shed", P.rows(s.shed), s.offered ? `${P.share(s.shed / s.offered)} of ${P.rows(s.offered)} rows` : "of no rows yet"),
      tile("Expired", P.rows(s.expired), s.shed ? `${P.share(s.expired / s.shed)} of what was shed` : "rows too old to be in time"),
      tile("Batches", P.rows(s.batches), s.took_s === null ? "" : `last took ${P.seconds(s.took_s)}`));
  }
  function renderDecisions(d) {
    const open = new Set([...document.querySelectorAll("#decisions details[open]")].map((item) => item.dataset.key));
    const items = d.decisions.map((one) => {
      const key = `${one.batch}/${one.slot}`;
      const rows = [["seen", one.seen], ["decided", one.decided], ["happened", one.happened]].filter(([, text]) => text);
      return make("li", {}, make("details", { "data-key": key, open: open.has(key) },
        make("summary", { "data-spot": "decision " + key }, make("span", { class: "when" }, one.batch === null ? `slot ${one.slot}` : `batch ${one.batch}`),
          make("span", { class: "keep" + (one.keep < 0.9995 ? " part" : "") }, P.share(one.keep)), make("span", { class: "reason" }, one.reason)),
        make("dl", {}, rows.map(([name, text]) => [make("dt", {}, name), make("dd", {}, text)]))));
    });
    fill($("decisions"), make("h2", {}, "Decisions, and why"), items.length ? make("ol", { class: "decisions" }, items) : make("p", { class: "quiet" }, "No decision yet."));
  }
  function renderGates(s) {
    const meter = (share) => make("td", { class: "meter" }, make("span", { class: "share", "aria-hidden": "true" }, (() => { const bar = make("i"); bar.style.width = `${100 * (share || 0)}%`; return bar; })()), make("span", { class: "percent" }, P.share(share)));
    const rows = [];
    for (const gate of s.gates) {
      rows.push(make("tr", {}, make("td", {}, gate.name), make("td", {}, P.rows(gate.offered)), make("td", {}, P.rows(gate.kept)), make("td", {}, P.rows(gate.offered - gate.kept)),
        make("td", {}, P.rows(gate.expired)), meter(gate.offered ? gate.kept / gate.offered : null), make("td", {}, P.share(gate.keep))));
      for (const one of gate.classes) rows.push(make("tr", {}, make("td", {}, make("span", { class: "class" }, one.name)), make("td", {}, P.rows(one.offered)), make("td", {}, P.rows(one.kept)),
        make("td", {}, P.rows(one.offered - one.kept)), make("td", {}, P.rows(one.expired)), meter(one.offered ? one.kept / one.offered : null), make("td", {}, P.share(one.keep))));
    }
    const outputs = Object.entries(s.outputs || {}).map(([name, o]) => make("p", { class: "quiet" }, `Output ${name}: ${P.rows(o.rows)} rows, mean delay ${P.seconds(o.delay_s)}`));
    if (!rows.length) { fill($("gates"), make("h2", {}, "Gates and classes"), make("p", { class: "quiet" }, "No gate has counted a row yet.")); return; }
    fill($("gates"), make("h2", {}, "Gates and classes, since the journal began"), make("div", { class: "scroll" }, make("table", {},
      make("thead", {}, make("tr", {}, ["gate", "offered", "kept", "shed", "of those expired", "kept in all", "keep now"].map((name) => make("th", {}, name)))), make("tbody", {}, rows))), outputs);
  }

  const count = (n, one, many) => `${n} ${n === 1 ? one : many}`;
  function renderAll() {
    const all = state.overview.queries, late = all.filter(isLate).length, noted = all.filter((q) => q.notes).length;
    const states = ["running", "waiting", "ended", "lost"].map((name) => [name, all.filter((q) => q.state === name).length]).filter(([, n]) => n);
    const told = [`${count(all.length, "query", "queries")}: ${states.map(([name, n]) => `${n} ${name}`).join(", ")}`, late ? `${late} above the target` : "none above the target", noted ? `${noted} with notes` : ""].filter(Boolean).join(" · ");
    const shown = all.filter(isWanted);
    const rows = shown.map((q) => make("tr", { class: "go", onclick: () => choose(q.id) },
      make("td", { class: "query" }, make("span", { class: `dot ${q.state}`, title: q.state }), " ", make("button", { class: "link", type: "button", "data-spot": "query " + q.id }, q.name)), make("td", { class: "state" }, q.state),
      make("td", { class: isLate(q) ? "late" : "" }, P.seconds(q.delay_s)), make("td", {}, P.seconds(q.target_s)), make("td", {}, P.share(q.keep)),
      make("td", {}, P.rows(q.offered)), make("td", {}, P.rows(q.shed)), make("td", {}, P.rows(q.expired)), make("td", {}, P.rows(q.batches)), make("td", {}, q.notes || "")));
    const names = ["query", "state", "delay", "target", "keep", "offered", "shed", "expired", "batches", "notes"];
    return [make("h1", {}, "All queries"), make("p", { class: "where" }, told), make("section", { class: "block" }, make("div", { class: "scroll" }, make("table", {}, make("thead", {}, make("tr", {}, names.map((n) => make("th", { class: n }, n)))), make("tbody", {}, rows))),
      shown.length ? null : make("p", { class: "quiet" }, `No query is called “${state.filter}”.`))];
  }
  function renderNetwork(id) {
    const network = state.overview.networks.find((n) => n.id === id);
    if (!network) return [make("p", {}, "There is no such query here.")];
    const d = network.drawing;
    if (!d) return [make("h1", {}, `Network ${network.name}`), make("p", { class: "quiet" }, "No node has reported yet.")];
    const mine = state.overview.queries.filter((q) => q.network === id);
    const notes = d.nodes.flatMap((node) => (node.notes || []).map((line) => `${node.name}: ${line}`)).concat(d.coordinator ? d.coordinator.notes || [] : []);
    const old = Math.max(0, ...d.nodes.map((node) => node.age_s ?? 0));
    return [make("h1", {}, `Network ${network.name}`, make("span", { class: "pill" + (old < 10 ? " live" : "") }, old < 10 ? "running" : `reported ${P.ago(old)}`)),
      make("div", { class: "why" + (d.arcs.some((a) => a.keep !== null && a.keep < 0.9995) ? " shedding" : "") }, P.describePlan(d)),
      make("section", { class: "block net", tabindex: "0", "data-spot": "drawing", role: "group", "aria-label": "drawing of the network" }, P.drawNetwork(d, $("content").clientWidth - 84)),
      make("section", { class: "block" }, make("h2", {}, "Plan and messages"), make("div", { class: "scroll" }, P.listMessages(d))),
      make("section", { class: "block" }, make("h2", {}, "Queries"), make("div", { class: "scroll" }, make("table", {}, make("thead", {}, make("tr", {}, ["query", "delay", "keep", "offered", "shed", "batches"].map((n) => make("th", {}, n)))),
        make("tbody", {}, mine.map((q) => make("tr", { class: "go", onclick: () => choose(q.id) }, make("td", {}, make("span", { class: `dot ${q.state}` }), " ", make("button", { class: "link", type: "button", "data-spot": "query " + q.id }, q.name)),
          make("td", {}, P.seconds(q.delay_s)), make("td", {}, P.share(q.keep)), make("td", {}, P.rows(q.offered)), make("td", {}, P.rows(q.shed)), make("td", {}, P.rows(q.batches)))))))),
      notes.length ? make("section", { class: "block" }, make("h2", {}, "Notes"), make("ul", { class: "notes" }, notes.map((line) => make("li", {}, line)))) : null].filter(Boolean);
  }
  function afterStory() { for (const button of document.querySelectorAll("[data-choose]")) button.addEventListener("click", () => choose(button.dataset.choose)); }

  // -- theme, keys, start --------------------------------------------------------------------------------------------------
  function setTheme(theme, { keep = true } = {}) {
    document.documentElement.dataset.theme = theme;
    $("theme").setAttribute("aria-label", theme === "dark" ? "light colours" : "dark colours");
    if (keep) try { localStorage.setItem("penstock-theme", theme); } catch (error) { /* a private window */ }
    if (charts) charts.recolour();
    if (state.chosen === "story") render();
  }
  const toggleTheme = () => setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
  function step(by) {
    const ids = entries().map((entry) => entry.id), at = ids.indexOf(state.chosen);
    choose(ids[(at + by + ids.length) % ids.length]);
  }
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || /^(SELECT|INPUT|TEXTAREA)$/.test(event.target.tagName)) return;
    const number = Number(event.key);
    if (event.key === "?") $("help").showModal();
    else if (event.key === "/" && !$("filter").hidden) { event.preventDefault(); $("filter").focus(); }
    else if (event.key === "j" || event.key === "]") step(1);
    else if (event.key === "k" || event.key === "[") step(-1);
    else if (event.key === "t") toggleTheme();
    else if (event.key === "0") zoom(null);
    else if (number >= 1 && number <= RANGES.length && state.chosen && isQuery(state.chosen)) setRange(number - 1);
  });
  document.addEventListener("visibilitychange", () => {  // a browser has few connections: a page that nobody sees gives its own back
    if (embedded || !state.stream) return;
    if (document.hidden) { state.stream.close(); } else { connect(); refresh(); }
  });
  setInterval(() => { if (!document.hidden && !embedded && state.detail && state.detail.state === "running" && !state.zoom && charts && state.curves) charts.draw(state.curves, span()); }, 1000);

  function start() {
    let theme = null, range = null;
    try { theme = localStorage.getItem("penstock-theme"); range = localStorage.getItem("penstock-range"); } catch (error) { /* a private window */ }
    const dark = matchMedia("(prefers-color-scheme: dark)");
    setTheme(theme || (dark.matches ? "dark" : "light"), { keep: false });
    dark.addEventListener("change", (event) => { if (!localStorage.getItem("penstock-theme")) setTheme(event.matches ? "dark" : "light", { keep: false }); });
    if (embedded) state.range = RANGES.length - 1; else if (range !== null && RANGES[range]) state.range = Number(range);
    $("theme").addEventListener("click", toggleTheme);
    $("keys").addEventListener("click", () => $("help").showModal());
    $("filter").addEventListener("input", (event) => { state.filter = event.target.value.trim(); renderSide(); if (state.chosen === "all") render(); });
    $("filter").addEventListener("keydown", (event) => { const first = entries().find((entry) => entry.query); if (event.key === "Enter" && first) choose(first.id); });
    $("pick").addEventListener("change", (event) => choose(event.target.value));
    addEventListener("hashchange", () => { const id = hashed(); if (id && id !== state.chosen) choose(id); });
    showConnection(embedded ? "report" : "lost");
    begin();
  }
  async function begin() {
    try { takeOverview(await askOverview()); } catch (error) {
      fill($("content"), make("p", {}, "The dashboard does not answer. It is asked again every second."));
      setTimeout(begin, 1000);
    }
  }
  function chooseFirst() {
    const ids = entries().map((entry) => entry.id), wanted = hashed();
    const first = embedded && embedded.story ? "story" : state.overview.networks.length ? state.overview.networks[0].id : ids[0];
    if (ids.length) return choose(ids.includes(wanted) ? wanted : first, { push: ids.includes(wanted) });
    fill($("content"), make("h1", {}, "No journal yet"), make("p", { class: "quiet" }, "A query is shown here as soon as it has written to its journal."));
    if (!embedded && !state.stream) connect();
  }
  start();
})();
