"use strict";
// Reads what page.py wrote, fills the charts of charts.py with what is chosen, and nothing else.

const element = (id) => document.getElementById(id);
const parsed = (id) => JSON.parse(element(id).textContent);
const data = parsed("data");
const chosen = { model: data.models[0], method: data.methods[0].name, ratio: 0.5, layer: 0, plane: "distance" };
const drawn = new Set(data.methods.slice(0, data.first).map((method) => method.name)); // whose curves are seen
const RIVAL = "last"; // what stands beside the chosen method
const darkness = matchMedia("(prefers-color-scheme: dark)");
const charts = {}; // name -> the library's document of a chart

const percent = (share, digits = 0) => `${(100 * share).toFixed(digits)} %`;
const thousands = (count) => count.toLocaleString("en");
const sum = (numbers) => numbers.reduce((a, b) => a + b, 0);
const extreme = (choose, numbers) => numbers.reduce((a, b) => choose(a, b), 0);
const bytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
const singles = (text) => new Float32Array(bytes(text).buffer);
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const curve = () => chosen.model.curves[chosen.method];
const labelled = (name) => data.methods.find((method) => method.name === name).label;

/** A colour as the page can show it: lighter on dark ground. */
function toned(colour) {
  if (!darkness.matches) return colour;
  if (colour === "#000000") return "#ffffff";
  const parts = [1, 3, 5].map((place) => parseInt(colour.slice(place, place + 2), 16));
  return `rgb(${parts.map((part) => Math.round(part + 0.35 * (255 - part))).join(", ")})`;
}

/** The point of the chosen curve that is next to the chosen ratio. */
function point() {
  return curve().reduce((a, b) => (Math.abs(b.ratio - chosen.ratio) < Math.abs(a.ratio - chosen.ratio) ? b : a));
}

/** Which states of a layer a point keeps, a number 0 or 1 each; null where it has no plan. */
function kept(at, place) {
  if (!at.keep) return null;
  const bits = bytes(at.keep[place]);
  const count = singles(chosen.model.layers[place].decay).length;
  return Uint8Array.from({ length: count }, (_, i) => (bits[i >> 3] >> (7 - (i & 7))) & 1);
}

const source = (chart, name) => charts[chart].get_model_by_name(name);

function fill(chart, name, columns) {
  source(chart, name).data = columns;
}

/** Set a range, also as what the reset button goes back to. */
function stretch(range, start, end) {
  Object.assign(range, { start, end, reset_start: start, reset_end: end });
}

function drawTradeOff(at) {
  const full = curve()[0];
  fill("trade-off", "unpruned", { ratio: [0, 1], accuracy: [full.accuracy, full.accuracy] });
  for (const method of data.methods) {
    const points = chosen.model.curves[method.name] ?? [];
    fill("trade-off", method.name, {
      ratio: points.map((p) => p.ratio),
      accuracy: points.map((p) => p.accuracy),
      low: points.map((p) => p.interval[0]),
      high: points.map((p) => p.interval[1]),
      label: points.map(() => method.label),
    });
    const own = method.name === chosen.method;
    const colour = toned(method.colour);
    for (const part of ["interval", "line", "marks"]) {
      source("trade-off", `${part} ${method.name}`).visible = own || drawn.has(method.name);
    }
    Object.assign(source("trade-off", `interval ${method.name}`).glyph, { line_color: colour, line_alpha: own ? 0.8 : 0.4 });
    Object.assign(source("trade-off", `line ${method.name}`).glyph, {
      line_color: colour, line_width: own ? 4 : 1.5, line_alpha: own ? 1 : 0.7,
    });
    const marks = source("trade-off", `marks ${method.name}`).glyph;
    marks.line_color = colour;
    if (marks.fill_color.value !== null) marks.fill_color = colour;
    marks.line_alpha = marks.fill_alpha = own ? 1 : 0.75;
  }
  fill("trade-off", "chosen", { ratio: [at.ratio], accuracy: [at.accuracy] });
  Object.assign(source("trade-off", "ring").glyph, { line_color: css("--ink"), fill_color: null });
  element("trade-off").setAttribute("aria-label",
    `${labelled(chosen.method)}: ` + curve().map((p) => `${percent(p.ratio)} pruned ${percent(p.accuracy, 1)}`).join(", "));
}

function drawStates(at) {
  const layers = chosen.model.layers.map((layer) => layer.name);
  const before = chosen.model.layers.map((layer) => layer.states);
  const [chart] = charts.states.roots();
  chart.y_range.factors = [...layers].reverse();
  stretch(chart.x_range, 0, 1.05 * Math.max(...before));
  fill("states", "layers", { layer: layers, before, kept: at.states });
  const rows = layers.map((name, i) => [name, before[i], at.states[i]]);
  rows.push(["total", sum(before), sum(at.states)]);
  element("rows").replaceChildren(...rows.map(([name, all, kept]) => {
    const row = document.createElement("tr");
    const head = Object.assign(document.createElement("th"), { scope: "row", textContent: name });
    row.append(head, ...[thousands(all), thousands(kept), percent(1 - kept / all, 1)].map((textContent) =>
      Object.assign(document.createElement("td"), { textContent })));
    return row;
  }));
  element("states").setAttribute("aria-label", rows.map(([name, all, kept]) => `${name}: ${kept} of ${all}`).join(", "));
}

/** The poles of a layer as columns: their place in the chosen plane, how long they remember, how fast they turn. */
function poles(layer, keep, wanted) {
  const decay = singles(layer.decay), angle = singles(layer.angle);
  const columns = { x: [], y: [], memory: [], frequency: [] };
  for (let i = 0; i < decay.length; i++) {
    if ((!keep || keep[i] === 1) !== wanted) continue;
    for (const sign of layer.mirrored ? [1, -1] : [1]) {
      const turn = sign * angle[i], memory = -1 / Math.expm1(decay[i]), size = Math.exp(decay[i]);
      columns.x.push(chosen.plane === "disc" ? size * Math.cos(turn) : -Math.log10(memory));
      columns.y.push(chosen.plane === "disc" ? size * Math.sin(turn) : turn / Math.PI);
      columns.memory.push(memory);
      columns.frequency.push(turn / Math.PI);
    }
  }
  return columns;
}

function drawPoles(at, keep) {
  const layer = chosen.model.layers[chosen.layer];
  const disc = chosen.plane === "disc"; // else log10 of the distance to the circle, which is one over the memory
  const sides = { "kept poles": poles(layer, keep, true), "pruned poles": poles(layer, keep, false) };
  const [chart] = charts.poles.roots();
  const all = [...sides["kept poles"].x, ...sides["pruned poles"].x];
  const few = all.length < 1000;
  const wide = 1.1 * (chart.inner_width / chart.inner_height || 1); // a circle is round
  stretch(chart.x_range, ...(disc ? [-wide, wide] : [extreme(Math.min, all) - 0.1, 0.1]));
  chart.below[0].axis_label = disc ? "real part" : "distance to the circle, as a power of ten";
  chart.left[0].axis_label = disc ? "imaginary part" : "frequency, in π per step";
  source("poles", "circle").visible = disc;
  for (const [name, size] of [["kept", few ? 6 : 2], ["pruned", few ? 7 : 4]]) source("poles", `${name} marks`).glyph.size = size;
  for (const [name, columns] of Object.entries(sides)) fill("poles", name, columns);
  const stays = sides["kept poles"].x.length, goes = sides["pruned poles"].x.length;
  const whole = at.ratio === 0 ? "" : " This method does not choose among the states; the poles are those of the unpruned layer.";
  element("poles-note").textContent = `${thousands(stays)} poles stay, ${thousands(goes)} go.` + (keep ? "" : whole);
  element("poles").setAttribute("aria-label", `Poles of ${layer.name}: ${stays} kept, ${goes} pruned`);
}

function showCards(at) {
  const full = curve()[0];
  const before = sum(chosen.model.layers.map((layer) => layer.states)), kept = sum(at.states);
  const lost = 100 * (full.accuracy - at.accuracy);
  const seeds = at.seeds > 1 ? `, ± ${(100 * at.deviation).toFixed(1)} over ${at.seeds} seeds` : "";
  const texts = {
    accuracy: percent(at.accuracy, 1),
    "interval-note": `95 % interval ${at.interval.map((end) => (100 * end).toFixed(1)).join(" to ")} %`,
    "accuracy-note": at.ratio === 0 ? "the unpruned model"
      : Math.abs(lost) < 0.05 ? `as the unpruned model${seeds}`
      : `${Math.abs(lost).toFixed(1)} points ${lost >= 0 ? "below" : "above"} the unpruned model${seeds}`,
    kept: thousands(kept),
    "rival-note": rival(at),
    "kept-note": `of ${thousands(before)} stay (${percent(1 - kept / before, 1)} pruned)`,
    size: `${(at.parameters / 1000).toFixed(1)}k`,
    "size-note": `parameters, ${percent(1 - at.parameters / full.parameters, 1)} fewer; ${thousands(4 * at.parameters)} bytes as floats`,
    speed: at.speed ? `${at.speed.toFixed(2)}×` : "–",
    "speed-note": at.speed ? "as fast as the unpruned model"
      : at.plan ? "Sweeps do not time models; the command below prints steps per second, before and after." : "",
  };
  for (const [id, text] of Object.entries(texts)) element(id).textContent = text;
}

/** What LAST reaches at the chosen ratio, or the best of the others where LAST itself is chosen. */
function rival(at) {
  const name = chosen.method !== RIVAL ? RIVAL : data.methods.find((method) => method.name !== RIVAL)?.name;
  const other = (chosen.model.curves[name] ?? []).find((p) => p.ratio === at.ratio);
  return other && name !== chosen.method && at.ratio > 0 ? `${labelled(name)} here: ${percent(other.accuracy, 1)}` : "";
}

function showPlan(at) {
  const link = element("plan");
  link.hidden = element("command").hidden = !at.plan;
  link.href = link.textContent = at.plan ?? "";
  element("plan-note").textContent = at.plan ? "The plan says which states stay; shrink the model with it:"
    : at.ratio === 0 ? "Nothing is pruned here."
    : "There is no plan: the method does not choose among the states, or the plan was not beside the results.";
  element("command").textContent = at.command ?? "";
}

/** Show what is chosen, everywhere. */
function show() {
  const at = point();
  const slider = element("ratio");
  slider.max = curve().length - 1;
  slider.value = curve().indexOf(at);
  slider.setAttribute("aria-valuetext", percent(at.ratio));
  element("ratio-text").textContent = percent(at.ratio);
  element("method-note").textContent = data.methods.find((method) => method.name === chosen.method).description;
  drawTradeOff(at);
  drawStates(at);
  drawPoles(at, kept(at, chosen.layer));
  showCards(at);
  showPlan(at);
  history.replaceState(null, "", "#" + new URLSearchParams({ model: chosen.model.name, method: chosen.method, ratio: at.ratio }));
  element("main").dataset.shown = `${chosen.model.name} ${chosen.method} ${at.ratio} ${chosen.layer} ${chosen.plane}`;
}

/** Offer the methods and layers of the chosen model. */
function chooseModel(model) {
  chosen.model = model;
  chosen.layer = 0;
  const methods = data.methods.filter((method) => model.curves[method.name]);
  if (!model.curves[chosen.method]) chosen.method = methods[0].name;
  element("methods").replaceChildren(element("methods").firstElementChild, ...methods.map((method) => {
    const label = document.createElement("label");
    const radio = Object.assign(document.createElement("input"),
      { type: "radio", name: "method", value: method.name, checked: method.name === chosen.method });
    label.append(radio, method.label);
    return label;
  }));
  element("curves").replaceChildren(element("curves").firstElementChild, ...methods.map((method) => {
    const label = document.createElement("label");
    const box = Object.assign(document.createElement("input"),
      { type: "checkbox", name: "curve", value: method.name, checked: drawn.has(method.name) });
    const swatch = document.createElement("span");
    swatch.className = "swatch";
    swatch.dataset.colour = method.colour;
    label.append(box, swatch, method.label);
    return label;
  }));
  element("lines").lastElementChild.replaceChildren(...methods.filter((method) => method.description).flatMap((method) => [
    Object.assign(document.createElement("dt"), { textContent: method.label }),
    Object.assign(document.createElement("dd"), { textContent: method.description })]));
  element("layer").replaceChildren(...model.layers.map((layer, i) => new Option(layer.name, i)));
  element("model").value = model.name;
  element("subtitle").textContent = `${model.name} on ${model.task}: no retraining, accuracy on up to ${thousands(data.about.examples)} `
    + `${data.about.split} examples`;
}

/** Give the charts the page's colours, light or dark. */
function paint() {
  for (const swatch of document.querySelectorAll(".swatch")) swatch.style.background = toned(swatch.dataset.colour);
  const ink = css("--ink"), quiet = css("--quiet"), line = css("--line");
  for (const chart of Object.values(charts)) {
    const [root] = chart.roots();
    for (const axis of [...root.below, ...root.left].filter((part) => "axis_label_text_color" in part)) {
      Object.assign(axis, { axis_label_text_color: ink, major_label_text_color: quiet, axis_line_color: line, major_tick_line_color: line });
    }
    for (const grid of root.center.filter((part) => "grid_line_color" in part)) grid.grid_line_color = line;
    for (const legend of [...root.above, ...root.right].filter((part) => "label_text_color" in part)) {
      Object.assign(legend, { label_text_color: ink, background_fill_color: null, border_line_color: null });
    }
  }
  const tint = (chart, name, colour) => Object.assign(source(chart, name).glyph, { fill_color: colour, line_color: colour });
  for (const bars of ["kept states", "before"]) tint("states", bars, toned(data.colours.kept));
  for (const name of ["kept", "pruned"]) tint("poles", `${name} marks`, toned(data.colours[name]));
}

function listen() {
  element("model").addEventListener("change", (event) => {
    chooseModel(data.models.find((model) => model.name === event.target.value));
    paint();
    show();
  });
  element("methods").addEventListener("change", (event) => { chosen.method = event.target.value; show(); });
  element("curves").addEventListener("change", ({ target }) => { drawn[target.checked ? "add" : "delete"](target.value); show(); });
  element("ratio").addEventListener("input", (event) => { chosen.ratio = curve()[event.target.value].ratio; show(); });
  element("layer").addEventListener("change", (event) => { chosen.layer = Number(event.target.value); show(); });
  element("plane").addEventListener("change", (event) => { chosen.plane = event.target.value; show(); });
  charts.poles.roots()[0].properties.inner_width.change.connect(show);
  element("controls").addEventListener("submit", (event) => event.preventDefault());
  darkness.addEventListener("change", () => { paint(); show(); });
}

/** Start where the address says, if it names a point of this page. */
function start() {
  const wanted = new URLSearchParams(location.hash.slice(1));
  const model = data.models.find((known) => known.name === wanted.get("model")) ?? data.models[0];
  if (model.curves[wanted.get("method")]) chosen.method = wanted.get("method");
  if (wanted.has("ratio") && Number.isFinite(Number(wanted.get("ratio")))) chosen.ratio = Number(wanted.get("ratio"));
  element("model").replaceChildren(...data.models.map((known) => new Option(known.name)));
  element("model-choice").hidden = data.models.length === 1;
  const [command = "", ...others] = data.about.commands ?? [];
  const more = others.length ? ` and ${others.length} more in sweep.json` : "";
  element("footer").textContent = `Made with ssmprune, ${data.about.date ?? ""}, on ${data.about.machine ?? "?"}. ${command}${more}`;
  chooseModel(model);
}

async function main() {
  start();
  const items = parsed("charts");
  for (const [name, item] of Object.entries(items)) {
    await Bokeh.embed.embed_item(item);
    charts[name] = Bokeh.documents.at(-1);
  }
  paint();
  listen();
  show();
}

main();
