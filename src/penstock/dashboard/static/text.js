"use strict";
// Numbers as people read them, and elements without any HTML from data: text only ever becomes text.
const Penstock = window.Penstock || (window.Penstock = {});

Penstock.seconds = (value, digits = 3) => {
  if (value === null || value === undefined || !isFinite(value)) return "–";
  const size = Math.abs(value), trim = (x) => String(Number(x.toPrecision(digits)));
  if (size === 0) return "0 s";
  if (size < 1e-3) return size < 1e-5 ? trim(value * 1e6) + " µs" : trim(value * 1e3) + " ms";
  if (size < 1) return trim(value * 1e3) + " ms";
  if (size < 600) return trim(value) + " s";
  if (size < 7200) return trim(value / 60) + " min";
  return size < 172800 ? trim(value / 3600) + " h" : trim(value / 86400) + " days";
};

Penstock.rows = (value) => {
  if (value === null || value === undefined || !isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size < 10 && size % 1) return value.toFixed(1);
  if (size < 1e5) return Math.round(value).toLocaleString("en");
  const units = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];
  for (const [unit, name] of units) if (size >= unit) return Number((value / unit).toPrecision(4)) + " " + name;
  return String(value);
};

Penstock.share = (value) => {
  if (value === null || value === undefined || !isFinite(value)) return "–";
  let percent = 100 * value;
  if (percent > 0 && percent < 0.1) percent = 0.1;
  if (percent > 99.9 && percent < 100) percent = 99.9;
  return Number(percent.toPrecision(3)) + "%";
};

Penstock.ago = (value) => {
  if (value === null || value === undefined) return "never";
  return value < 2 ? "just now" : Penstock.seconds(value, value < 100 ? 2 : 3) + " ago";
};

Penstock.clock = (time) => {
  if (!time) return "";
  const date = new Date(time * 1000), two = (n) => String(n).padStart(2, "0");
  const clock = `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
  return Math.abs(Date.now() / 1000 - time) > 64800 ? `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${clock}` : clock;
};

// make("td", {class: "x", onclick: f}, "text", element): strings become text nodes, never HTML.
Penstock.make = (tag, attributes = {}, ...children) => {
  const svg = Penstock.svgTags.has(tag);
  const element = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat()) if (child !== null && child !== undefined) element.append(child);
  return element;
};
Penstock.svgTags = new Set(["svg", "g", "rect", "path", "text", "title", "circle", "defs", "marker", "line", "tspan", "polygon"]);
Penstock.fill = (element, ...children) => { element.replaceChildren(...children.flat().filter((child) => child !== null)); return element; };
