"use strict";
// The drawing of a network: a lane for each node, operators in the order of the flow, gates where rows are dropped.
(() => {
  const P = window.Penstock, make = P.make;
  const BOX = 132, HIGH = 46, LEAST = 236, MOST = 320, DOWN = 70, HEAD = 46, LEFT = 18, GAP = 16, PAD = 16, FEW = 5;
  const cut = (text, most) => (text.length > most ? text.slice(0, Math.max(1, most - 1)) + "…" : text);

  P.drawNetwork = (drawing, room = 0) => {
    const boxes = drawing.nodes.map((node, i) => {
      const mine = drawing.parts.filter((p) => p.lane === i), columns = mine.map((p) => p.column);
      return { node, rows: 1 + Math.max(0, ...mine.map((p) => p.row)), first: Math.min(...columns, Infinity), last: Math.max(...columns, -1) };
    });
    const columns = 1 + Math.max(0, ...drawing.parts.map((p) => p.column));
    const isPacked = boxes.length > FEW;
    if (isPacked) pack(boxes, drawing);
    else boxes.forEach((box, i) => { box.shelf = i; box.first = 0; box.last = columns - 1; });
    const across = Math.min(MOST, Math.max(isPacked ? LEAST - 40 : LEAST, (room - 2 * LEFT - 24 - BOX) / Math.max(1, columns - 1)));
    const head = isPacked ? HEAD + 14 : HEAD;  // a narrow box says on a second line what a wide one says on the first
    let top = 4;
    for (let shelf = 0; shelf <= Math.max(0, ...boxes.map((box) => box.shelf)); shelf++) {
      const here = boxes.filter((box) => box.shelf === shelf);
      const height = head + Math.max(1, ...here.map((box) => box.rows)) * DOWN + PAD - (DOWN - HIGH) / 2;
      for (const box of here) Object.assign(box, { top, height, left: box.first * across, width: (box.last - box.first) * across + BOX + 2 * LEFT + 24 });
      top += height + GAP;
    }
    const width = (columns - 1) * across + BOX + 2 * LEFT + 24;
    const place = {};
    for (const part of drawing.parts) {
      const box = boxes[part.lane] || boxes[boxes.length - 1];
      place[part.name] = { x: LEFT + 12 + part.column * across, y: box.top + head + part.row * DOWN, part };
    }
    const scale = room >= 0.7 * width ? Math.min(1, room / width) : 1;  // smaller than that nobody can read it: then it scrolls
    const svg = make("svg", { width: scale * width, height: scale * top, viewBox: `0 0 ${width} ${top}`, role: "img", "aria-label": describe(drawing) });
    for (const box of boxes) svg.append(drawNode(box, isPacked, box.node.name === drawing.bottleneck));
    const highest = Math.max(1e-9, ...drawing.arcs.map((arc) => arc.rate || 0));
    const labels = [];
    for (const arc of drawing.arcs) svg.append(drawArc(arc, place, highest, labels));
    for (const { x, y, part } of Object.values(place)) svg.append(drawPart(x, y, part, drawing));
    svg.append(...labels);
    return svg;
  };

  // Many nodes: several share a row where their columns leave room, each as near as possible to the rows of its sources.
  function pack(boxes, drawing) {
    const ends = [], lane = Object.fromEntries(drawing.parts.map((part) => [part.name, part.lane]));
    const sources = boxes.map((_, i) => drawing.arcs.filter((arc) => lane[arc.target] === i && lane[arc.source] !== i).map((arc) => boxes[lane[arc.source]]));
    for (const box of boxes) if (box.last < 0) box.first = box.last = 0;  // it runs nothing
    for (const box of [...boxes].sort((a, b) => a.first - b.first)) {
      const near = sources[boxes.indexOf(box)].map((one) => one.shelf).filter((shelf) => shelf !== undefined);
      const wish = near.length ? near.reduce((a, b) => a + b, 0) / near.length : 0;
      const free = [...ends.keys()].filter((shelf) => ends[shelf] < box.first);
      box.shelf = free.length ? free.reduce((a, b) => (Math.abs(b - wish) < Math.abs(a - wish) ? b : a)) : ends.length;
      ends[box.shelf] = box.last;
    }
  }

  const describe = (drawing) => drawing.nodes.map((node) => `node ${node.name}: load ${P.share(node.load)}, ${node.reason || "silent"}`).join("; ");

  function drawNode({ node, left, top, width, height }, isPacked, isBottleneck) {
    const load = node.load === null || node.load === undefined ? null : node.load;
    const name = isPacked ? cut(node.name, Math.floor((width - 130) / 8)) : `node ${node.name}`;
    const facts = [node.age_s === null ? "has not reported yet" : `load ${P.share(load)} of ${P.rows(node.left)} CPU`, node.age_s === null ? null : node.reason].filter(Boolean);
    if (isBottleneck) facts.push("bottleneck");
    const group = make("g", { "data-node": node.name }, make("title", {}, `node ${node.name}: ${facts.join(", ")}`),
      make("rect", { class: "lane-box" + (isBottleneck ? " bottleneck" : ""), x: left + 1, y: top, width: width - 2, height, rx: 10 }),
      make("text", { class: "lane", x: left + LEFT, y: top + 24 }, name));
    const long = isPacked ? 70 : 90, at = isPacked ? left + width - LEFT - long : left + LEFT + 24 + 9 * name.length;
    group.append(make("rect", { class: "load-back", x: at, y: top + 14, width: long, height: 11, rx: 5 }));
    if (load !== null) group.append(make("rect", { class: "load" + (load > 0.97 ? " high" : ""), x: at, y: top + 14, width: Math.max(2, long * Math.min(1, load)), height: 11, rx: 5 }));
    if (isPacked) group.append(make("text", { class: "small", x: left + LEFT, y: top + 42 }, cut([isBottleneck ? "bottleneck" : null, node.age_s === null ? "has not reported yet" : `load ${P.share(load)} · ${node.reason}`].filter(Boolean).join(" · "), Math.floor((width - 2 * LEFT) / 6))));
    else group.append(make("text", { class: "small", x: at + 100, y: top + 24 }, facts.join(" · ")));
    return group;
  }

  function drawArc(arc, place, most, labels) {
    const from = place[arc.source], to = place[arc.target];
    if (!from || !to) return make("g");
    const x1 = from.x + BOX, y1 = from.y + HIGH / 2, x2 = to.x, y2 = to.y + HIGH / 2, bend = Math.max(30, (x2 - x1) / 2);
    const group = make("g", {}, make("path", { class: "arc", d: `M${x1},${y1} C${x1 + bend},${y1} ${x2 - bend},${y2} ${x2},${y2}`, "stroke-width": 1 + 5 * Math.sqrt((arc.rate || 0) / most) }));
    const middle = (x1 + x2) / 2, centre = (y1 + y2) / 2;
    const far = from.part.lane !== to.part.lane || Math.abs(y1 - y2) > 8;  // then the end of the arc has more room than its middle
    const at = far ? { x: x2 - 16, anchor: "end", over: y2 - 8, under: y2 + 16 } : { x: middle, anchor: "middle", over: centre - 8, under: centre + 17 };
    labels.push(make("text", { class: "small halo", x: at.x, y: at.over, "text-anchor": at.anchor }, `${P.rows(arc.rate)}/s`));
    if (arc.keep !== null && arc.keep !== undefined) {
      const open = arc.keep > 0.9995;
      labels.push(make("circle", { class: "gate" + (open ? " open" : ""), cx: x2 - 7, cy: y2, r: 5 }, make("title", {}, `gate: keeps ${P.share(arc.keep)}`)));
      if (!open) labels.push(make("text", { class: "shed halo", x: at.x, y: at.under, "text-anchor": at.anchor }, `keep ${P.share(arc.keep)}`));
    }
    return group;
  }

  function drawPart(x, y, part, drawing) {
    const output = drawing.outputs[part.name];
    const note = part.kind === "input" ? `input · ${P.rows(part.rate)}/s`
      : part.kind === "output" ? (output ? `${P.rows(output.rows)} rows` + (output.delay_rows ? ` · ${P.seconds(output.delay_sum_s / output.delay_rows)}` : "") : "output")
        : `${part.title} · ${P.seconds(part.cost_s, 2)}`;
    const facts = part.kind === "operator" ? `${part.name}: ${part.title}, ${P.seconds(part.cost_s)} per row, ${P.rows(part.rate)} rows/s in, selectivity ${part.selectivity === null ? "–" : Number(part.selectivity.toPrecision(3))}` : part.name;
    return make("g", { "data-part": part.name }, make("title", {}, facts),
      make("rect", { class: `box ${part.kind}`, x, y, width: BOX, height: HIGH, rx: part.kind === "operator" ? 7 : 23 }),
      make("text", { x: x + BOX / 2, y: y + 20, "text-anchor": "middle" }, cut(part.name, 17)),
      make("text", { class: "small", x: x + BOX / 2, y: y + 36, "text-anchor": "middle" }, cut(note, 22)));
  }

  // What is beside the drawing: the plan in force, and the messages.
  P.listMessages = (drawing) => {
    const rows = drawing.nodes.map((node) => make("tr", {},
      make("td", {}, node.name),
      make("td", {}, node.manager ? node.manager.name || "–" : "–"),
      make("td", {}, node.reason || "–"),
      make("td", {}, P.ago(node.age_s)),
      make("td", {}, Object.entries(node.silent_s || {}).map(([peer, s]) => `${peer} for ${P.seconds(s, 2)}`).join(", ") || "none"),
      make("td", {}, Object.entries(node.ignored || {}).map(([reason, n]) => `${n} ${reason}`).join(", ") || "none")));
    return make("table", {}, make("thead", {}, make("tr", {}, ["node", "decides by", "in force", "reported", "silent peers", "messages ignored"].map((name) => make("th", {}, name)))), make("tbody", {}, rows));
  };

  const list = (names, most = 8) => (names.length > most ? `${names.slice(0, most).join(", ")} and ${names.length - most} more` : names.join(", "));
  P.describePlan = (drawing) => {
    const c = drawing.coordinator;
    if (!c) return "No coordinator: each node decides with what it knows.";
    const plan = c.plan === null || c.plan === undefined ? "no plan yet" : `plan ${c.plan} in force`;
    const keeps = Object.entries(c.keep || {}).filter(([, keep]) => keep < 0.9995).map(([name, keep]) => `${name} ${P.share(keep)}`);
    const heard = new Set(c.reporting || []), silent = drawing.nodes.map((node) => node.name).filter((name) => !heard.has(name));
    const reports = !heard.size ? "no report from any node" : !silent.length ? "reports from all nodes" : `reports from ${heard.size} of ${drawing.nodes.length} nodes, none from ${list(silent)}`;
    return `Coordinator (${c.method}): ${plan}, ${c.plans_computed} computed, ${reports}.` +
      (keeps.length ? ` It keeps ${list(keeps)}, and everything elsewhere.` : " It keeps everything.") + (c.trouble ? ` Trouble: ${c.trouble}` : "");
  };
})();
