// Charts as SVG: lines with bands, stacked areas and bars. Each is a figure with a readout in
// words, which the pointer and the arrow keys move; text is only ever set as text.

function logTicks(least, most) {
  const found = [];
  for (let power = Math.ceil(Math.log10(least) - 1e-9); power <= Math.log10(most) + 1e-9; power++) found.push(10 ** power);
  const skip = Math.ceil(found.length / 5);
  return found.filter((_, at) => at % skip === 0);
}

// The vertical scale: where a value lies, and which values are labelled.
function vertical(values, options, top, bottom) {
  let least = Math.min(...values);
  let most = Math.max(...values);
  if (options.least !== undefined) least = Math.min(least, options.least);
  if (options.most !== undefined) most = Math.max(most, options.most);
  if (options.log) {
    least = 10 ** Math.floor(Math.log10(Math.max(least, 1e-6)) - 1e-9);
    most = 10 ** Math.ceil(Math.log10(Math.max(most, least * 10)) - 1e-9);
    const from = Math.log10(least);
    const span = Math.log10(most) - from;
    return { place: (value) => bottom - ((Math.log10(Math.max(value, least)) - from) / span) * (bottom - top), marks: logTicks(least, most) };
  }
  if (most === least) {
    const room = Math.abs(most) * 0.1 || 1;
    least -= options.least === least ? 0 : room;
    most += room;
  }
  const room = (most - least) * 0.04;
  if (options.least === undefined || least < options.least) least -= room;
  if (options.most === undefined || most > options.most) most += room;
  return { place: (value) => bottom - ((value - least) / (most - least)) * (bottom - top), marks: ticks(least, most, 4) };
}

// Points of a line, cut where a value is missing.
function runs(values) {
  const found = [];
  let run = null;
  values.forEach((value, at) => {
    if (!known(value)) run = null;
    else if (run) run.push(at);
    else found.push((run = [at]));
  });
  return found;
}

// A figure with heading, readout and a place for its drawing.
function figure(title, mark) {
  const readout = el("p", { class: "readout" });
  const heading = el("h3", {}, el("bdi", {}, title));
  if (mark) heading.style.color = mark;
  const drawing = svg("svg", { class: "chart", tabindex: "0", role: "img" });
  const made = el("figure", {}, el("figcaption", {}, heading), readout, drawing);
  return { made, readout, drawing };
}

// Lines over the axis. `series`: [{name, mark, values, low, high, dash}]; `read(at)` says what is
// at a point, `rest` what is shown before one is chosen. `stack`: areas upon each other.
function lineChart(host, options) {
  const { made, readout, drawing } = figure(options.title, options.heading);
  host.append(made);
  const { x, series } = options;
  const direct = series.length > 1 && !options.stack && series.every((each) => each.name.length <= 4);
  if ((series.length > 1 || options.legend) && !direct) made.querySelector("figcaption").after(legend(series));
  const width = Math.max(240, made.clientWidth || 320);
  const height = options.tall ? Math.min(230, Math.max(170, width * 0.3)) : 150;
  const [left, right, top, bottom] = [44, width - (direct ? 32 : 8), 8, height - 22];
  drawing.setAttribute("viewBox", `0 0 ${width} ${height}`);
  const all = series.flatMap((each) => [...each.values, ...(each.low || []), ...(each.high || [])]).filter(known);
  readout.textContent = options.rest;
  drawing.setAttribute("aria-label", `${options.title}. ${options.rest} ${series.map(spoken(options)).join("; ")}. Arrow keys read single points.`);
  if (!all.length) {
    drawing.append(svg("text", { x: left, y: (top + bottom) / 2 }, "nothing in the chosen range"));
    return made;
  }
  const scale = vertical(all, options, top, bottom);
  const least = x[0];
  const most = x[x.length - 1];
  const across = (value) => (most === least ? (left + right) / 2 : left + ((value - least) / (most - least)) * (right - left));
  for (const mark of scale.marks) {
    const y = scale.place(mark);
    if (y < top - 1 || y > bottom + 1) continue;
    drawing.append(svg("line", { class: "grid", x1: left, x2: right, y1: y, y2: y }));
    drawing.append(svg("text", { x: left - 6, y: y + 3.5, "text-anchor": "end" }, options.format(mark)));
  }
  drawing.append(svg("line", { class: "axis", x1: left, x2: right, y1: bottom, y2: bottom }));
  for (const mark of ticks(least, most, Math.max(3, width / 75)).filter(Number.isInteger)) {
    const place = across(mark);
    const anchor = place > right - 14 ? "end" : place < left + 8 ? "start" : "middle";
    drawing.append(svg("text", { x: place, y: bottom + 15, "text-anchor": anchor }, grouped(mark)));
  }
  drawing.append(svg("text", { x: left - 6, y: bottom + 15, "text-anchor": "end" }, data.kind));
  for (const mark of options.versions || []) {
    const place = across(mark.x);
    drawing.append(svg("line", { class: "version", x1: place, x2: place, y1: top, y2: bottom }));
    drawing.append(svg("text", { x: place + (place > right - 70 ? -4 : 4), y: bottom - 5, "text-anchor": place > right - 70 ? "end" : "start" }, "new version"));
  }
  for (const each of series) drawSeries(drawing, each, x.map(across), scale.place, options.stack);
  if (direct) labels(drawing, series, scale.place, right, top, bottom);
  const cross = svg("line", { class: "cross", y1: top, y2: bottom, visibility: "hidden" });
  const dots = series.map((each) => svg("circle", { r: 3.2, fill: each.mark, visibility: "hidden" }));
  drawing.append(cross, ...dots);
  const show = (at) => {
    const visible = at === null ? "hidden" : "visible";
    cross.setAttribute("visibility", visible);
    dots.forEach((dot, number) => dot.setAttribute("visibility", at !== null && known(series[number].values[at]) ? visible : "hidden"));
    readout.textContent = at === null ? options.rest : options.read(at);
    if (at === null) return;
    cross.setAttribute("x1", across(x[at]));
    cross.setAttribute("x2", across(x[at]));
    dots.forEach((dot, number) => {
      if (!known(series[number].values[at])) return;
      dot.setAttribute("cx", across(x[at]));
      dot.setAttribute("cy", scale.place(series[number].values[at]));
    });
  };
  const nearest = (event) => {
    const box = drawing.getBoundingClientRect();
    const place = ((event.clientX - box.left) / box.width) * width;
    return x.reduce((best, value, at) => (Math.abs(across(value) - place) < Math.abs(across(x[best]) - place) ? at : best), 0);
  };
  points(drawing, x.length, show, nearest, readout);
  return made;
}

const spoken = (options) => (each) => {
  const values = each.values.filter(known);
  return values.length ? `${each.name} from ${options.format(values[0])} to ${options.format(values[values.length - 1])}` : `${each.name}: nothing`;
};

function legend(series) {
  const made = el("ul", { class: "legend" });
  for (const each of series) made.append(el("li", {}, el("i", { mark: each.mark }), el("bdi", {}, each.name)));
  return made;
}

// The names of lines at their ends, apart from each other.
function labels(drawing, series, height, right, top, bottom) {
  const ends = series
    .map((each) => ({ each, value: [...each.values].reverse().find(known) }))
    .filter((end) => end.value !== undefined)
    .map((end) => ({ ...end, y: height(end.value) }))
    .sort((one, other) => other.y - one.y);
  let below = bottom + 12;
  ends.forEach((end, at) => {
    end.y = Math.max(top + 11 * (ends.length - 1 - at), Math.min(end.y, below - 11));
    below = end.y;
    drawing.append(svg("text", { class: "label", x: right + 5, y: end.y + 4, fill: end.each.mark }, end.each.name));
  });
}

function drawSeries(drawing, each, places, height, stack) {
  for (const run of runs(each.values)) {
    const line = run.map((at, number) => `${number ? "L" : "M"}${places[at].toFixed(1)} ${height(each.values[at]).toFixed(1)}`).join("");
    if (each.low) {
      const under = [...run].reverse().map((at) => `L${places[at].toFixed(1)} ${height(each.low[at]).toFixed(1)}`).join("");
      const over = run.map((at, number) => `${number ? "L" : "M"}${places[at].toFixed(1)} ${height((each.high || each.values)[at]).toFixed(1)}`).join("");
      drawing.append(svg("path", { class: stack ? "area" : "band", d: `${over}${under}Z`, fill: each.mark }));
    }
    if (run.length === 1) drawing.append(svg("circle", { cx: places[run[0]], cy: height(each.values[run[0]]), r: 2.5, fill: each.mark }));
    else drawing.append(svg("path", { class: "line", d: line, stroke: each.mark, "stroke-dasharray": each.dash || "none" }));
  }
}

// Bars: `bars` are [{from, to, count, name}], their heights shares of all.
function barChart(host, options) {
  const { made, readout, drawing } = figure(options.title, options.heading);
  host.append(made);
  const width = Math.max(240, made.clientWidth || 320);
  const height = 140;
  const [left, right, top, bottom] = [44, width - 8, 8, height - 22];
  const all = options.bars.reduce((sum, bar) => sum + bar.count, 0);
  drawing.setAttribute("viewBox", `0 0 ${width} ${height}`);
  readout.textContent = options.rest;
  drawing.setAttribute("aria-label", `${options.title}, distribution. ${options.rest} Arrow keys read single bars.`);
  if (!all) {
    drawing.append(svg("text", { x: left, y: (top + bottom) / 2 }, "nothing in the chosen range"));
    return made;
  }
  const highest = Math.max(...options.bars.map((bar) => bar.count / all));
  const place = (share) => bottom - (share / highest) * (bottom - top);
  for (const mark of ticks(0, highest, 3)) {
    drawing.append(svg("line", { class: "grid", x1: left, x2: right, y1: place(mark), y2: place(mark) }));
    drawing.append(svg("text", { x: left - 6, y: place(mark) + 3.5, "text-anchor": "end" }, format.share(mark)));
  }
  const slot = (right - left) / options.bars.length;
  const gap = options.apart ? Math.max(slot * 0.3, slot - 56) : Math.min(1, slot * 0.1);
  const bars = options.bars.map((bar, at) => {
    const y = place(bar.count / all);
    const drawn = svg("rect", { class: "bar", x: left + at * slot + gap / 2, y, width: slot - gap, height: Math.max(bar.count ? 1 : 0, bottom - y), fill: options.mark });
    drawing.append(drawn);
    return drawn;
  });
  drawing.append(svg("line", { class: "axis", x1: left, x2: right, y1: bottom, y2: bottom }));
  for (const label of options.labels) {
    const x = left + label.at * slot;
    drawing.append(svg("text", { x, y: bottom + 15, "text-anchor": x > right - 14 ? "end" : "middle" }, label.text));
  }
  const show = (at) => {
    bars.forEach((bar, number) => bar.classList.toggle("chosen", number === at));
    const bar = options.bars[at];
    readout.textContent = at === null ? options.rest : `${bar.name}: ${format.share(bar.count / all)} (${grouped(bar.count)})`;
  };
  const nearest = (event) => {
    const box = drawing.getBoundingClientRect();
    return Math.min(bars.length - 1, Math.max(0, Math.floor((((event.clientX - box.left) / box.width) * width - left) / slot)));
  };
  points(drawing, bars.length, show, nearest, readout);
  return made;
}

// Moves a chart's readout by pointer and by arrow keys, and says it.
function points(drawing, count, show, nearest, readout) {
  let at = null;
  const announce = () => (document.getElementById("announcement").textContent = readout.textContent);
  drawing.addEventListener("pointermove", (event) => show((at = nearest(event))));
  drawing.addEventListener("pointerleave", () => show((at = null)));
  drawing.addEventListener("blur", () => show((at = null)));
  drawing.addEventListener("keydown", (event) => {
    const to = { ArrowRight: at === null ? 0 : at + 1, ArrowLeft: at === null ? count - 1 : at - 1, Home: 0, End: count - 1 }[event.key];
    if (event.key === "Escape") show((at = null));
    if (to === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    show((at = Math.min(count - 1, Math.max(0, to))));
    announce();
  });
}
