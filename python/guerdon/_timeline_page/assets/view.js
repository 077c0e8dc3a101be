// Moving through the trace by mouse, touch and keys, and saying what is under the pointer or
// chosen.

let asked = false;
function redraw() {
  if (asked) return;
  asked = true;
  requestAnimationFrame(() => {
    asked = false;
    drawAll();
  });
}

function drawAll() {
  width = port.clientWidth;
  if (view.resting) say(null);
  drawOverview();
  drawAxis();
  drawRows();
}

// Shows from a time to another: within the trace, and no less than a thousandth of a microsecond.
function show(from, to) {
  const least = Math.min(data.span, Math.max(1, 1e3 / data.unit));
  const wide = Math.min(data.span, Math.max(least, to - from));
  view.from = Math.max(0, Math.min(data.span - wide, from + (to - from - wide) / 2));
  view.to = view.from + wide;
  redraw();
}
const zoom = (times, middle = (view.from + view.to) / 2) => show(middle - (middle - view.from) * times, middle + (view.to - middle) * times);
const move = (share) => {
  const by = (view.to - view.from) * share;
  const from = Math.max(0, Math.min(data.span - (view.to - view.from), view.from + by));
  show(from, from + view.to - view.from);
};

// What was drawn nearest to a place on the canvas; inner bars before those around them.
function under(x, y) {
  const at = y + port.scrollTop;
  for (const [number, moment] of moments.entries()) {
    if (Math.abs(across(moment.at) - x) < 9 && Math.abs(momentPlace(moment) - at) < 10 && x > gutter()) return { moment: number };
  }
  const hit = layout.rows.find((each) => at >= each.y - 1 && at < each.y + each.height + 1);
  if (!hit || x < gutter()) return null;
  let best = null;
  for (const [number, depth, place, left, wide] of painted) {
    if (number !== hit.row.number) continue;
    const away = Math.max(0, left - x, x - left - wide);
    if (away < 4 && (!best || away < best.away || (away === best.away && depth >= best.depth))) best = { away, depth, place };
  }
  return best && bar(hit.row, best.depth, best.place);
}

const time = (units) => format.seconds(seconds(units));
const fine = (units) => {
  const value = seconds(units);
  return value >= 1 ? `${value.toFixed(3)} s` : value >= 1e-3 ? `${Number((value * 1e3).toPrecision(4))} ms` : `${Number((value * 1e6).toPrecision(4))} µs`;
};
const stepOf = new Map();
for (const group of groups) if (group.kind === "batches") for (const row of group.rows) for (const of of row.levels) for (let at = 0; at < of.count; at++) {
  if (of.more[at]?.step !== undefined) stepOf.set(`${group.process}\n${of.batch[at]}`, of.more[at].step);
}

// A bar or a moment in words: what it is, its facts, and the reason.
function described(one) {
  if (one.moment !== undefined) {
    const moment = moments[one.moment];
    const row = moment.row < 0 ? null : groups[moment.group].rows[moment.row];
    return { what: moment.name, status: "", facts: [["at", fine(moment.at)], ["on", row ? shortTrack(row) : groups[moment.group].title]], reason: moment.reason };
  }
  const facts = [["starts", fine(one.from)]];
  const put = (name, value) => facts.push([name, value]);
  const ran = one.open ? "not ended" : fine(one.to - one.from);
  if (one.count > 1) {
    put("drawn together", `${grouped(one.count)} in ${ran}`);
    put("busy", fine(one.busy));
    put("longest", fine(one.longest));
    if (one.bad) put("failed", grouped(one.bad));
  } else {
    if (one.queue >= 0) put("waited", fine(one.queue));
    put(one.status ? "ran" : "took", ran);
    if (one.tail !== undefined) put("tail", fine(one.tail));
  }
  const step = one.step ?? stepOf.get(`${groups[one.row.group].process}\n${one.batch}`);
  if (one.batch >= 0 && !one.name.startsWith("batch ")) put("batch", grouped(one.batch));
  if (step !== undefined && step >= 0) put("step", grouped(step));
  if (one.sample >= 0) put(one.calls > 0 ? "first sample" : "sample", one.samples > 1 ? `${one.sample} to ${one.sample + one.samples - 1}` : String(one.sample));
  if (one.sample < 0 && one.samples) put("samples", grouped(one.samples));
  for (const name of ["groups", "calls", "failed"]) if (one[name] !== undefined && !(one.count > 1)) put(name, grouped(one[name]));
  const tries = attempts(one);
  if (tries.length > 1 || one.attempt > 1) put("attempt", `${one.attempt || 1} of ${Math.max(tries.length, one.attempt || 1)}`);
  if (one.call !== undefined) put("call", text(one.call));
  put("on", shortTrack(one.row));
  return { what: one.name, status: one.count > 1 && !one.bad ? "" : one.status, facts, reason: one.reason === undefined ? "" : text(one.reason) };
}

// Where a row stands, in words.
function shortTrack(row) {
  const { kind, title } = groups[row.group];
  return kind === "function" ? `${title}, ${row.label}` : kind === "batches" ? title : row.label || title;
}

function say(one, aloud) {
  const host = byId("readout");
  view.resting = !one;
  if (!one) {
    host.replaceChildren(el("p", { class: "muted" }, restText()));
    return;
  }
  const { what, status, facts, reason } = described(one);
  const head = el("p", {}, el("span", { class: "what" }, el("bdi", {}, what)));
  if (status) {
    const chip = el("span", { class: "status", mark: ink[fills[status]?.[0]] || ink.frame }, status);
    chip.style.setProperty("--mark-text", colours(status)[1]);
    head.append(" ", chip);
  }
  const list = el("dl");
  for (const [name, value] of facts) list.append(el("div", {}, el("dt", {}, name), el("dd", {}, el("bdi", {}, value))));
  host.replaceChildren(head, list);
  if (reason) host.append(el("p", { class: "reason" }, el("bdi", {}, reason)));
  if (aloud) byId("announcement").textContent = [what, status, ...facts.map((each) => each.join(" ")), reason].filter(Boolean).join(", ");
}

const restText = () => `${time(view.to - view.from)} of ${time(data.span)} in view. Point at a bar, or press Tab to reach the timeline and then the arrow keys.`;

// Chooses a bar or a moment, and brings it into view.
function choose(one, aloud = true) {
  view.chosen = one;
  view.pinned = Boolean(one);
  say(one, aloud);
  if (one) {
    const moment = one.moment === undefined ? null : moments[one.moment];
    const [from, to] = moment ? [moment.at, moment.at] : [one.from, one.to];
    const wide = view.to - view.from;
    if (to < view.from + wide * 0.02 || from > view.to - wide * 0.02) show((from + Math.min(to, from + wide)) / 2 - wide / 2, (from + Math.min(to, from + wide)) / 2 + wide / 2);
    const y = moment ? momentPlace(moment) : layout.rows[one.row.number].y;
    if (y < port.scrollTop + 4) port.scrollTop = Math.max(0, y - 40);
    if (y + 30 > port.scrollTop + port.clientHeight) port.scrollTop = y + 60 - port.clientHeight;
    // The readout covers the end of the window.
    const line = port.getBoundingClientRect().top + y - port.scrollTop;
    const least = byId("readout").offsetHeight + 40;
    if (line > innerHeight - least) scrollBy(0, line - innerHeight + least);
    else if (line < 8) scrollBy(0, line - 60);
  }
  redraw();
}

function zoomTo(one) {
  if (!one || one.moment !== undefined) return;
  const room = Math.max((one.to - one.from) * 0.6, 1e3 / data.unit);
  show(one.from - room, one.to + room);
}

// The bar so many places after the chosen one of its row.
function along(by) {
  const { chosen } = view;
  if (!chosen || chosen.moment !== undefined) return choose(nearest(layout.rows[0]?.row, (view.from + view.to) / 2));
  const places = flat(chosen.row);
  const now = places.findIndex(([depth, at]) => depth === chosen.depth && at === chosen.at);
  const [depth, at] = places[Math.max(0, Math.min(places.length - 1, now + by))];
  return choose(bar(chosen.row, depth, at));
}

function nearest(row, middle) {
  if (!row) return null;
  let best = null;
  row.levels.forEach((of, depth) => {
    const first = Math.min(of.count - 1, firstAfter(of, middle));
    for (const at of [first - 1, first]) {
      if (at < 0) continue;
      const away = Math.max(0, of.from[at] - middle, middle - of.to[at]);
      if (!best || away < best.away || (away === best.away && depth > best.depth)) best = { away, depth, at };
    }
  });
  return best && bar(row, best.depth, best.at);
}

function toRow(by) {
  const { chosen } = view;
  if (!chosen || chosen.moment !== undefined) return along(0);
  const next = layout.rows[chosen.row.number + by];
  const middle = (Math.max(chosen.from, view.from) + Math.min(chosen.to, view.to)) / 2;
  return next ? choose(nearest(next.row, middle)) : null;
}

function toTrouble(by) {
  if (!troubles.length) return;
  const same = (each) => view.chosen && (each.moment !== undefined ? each.moment === view.chosen.moment : each.row === view.chosen.row && each.depth === view.chosen.depth && each.at === view.chosen.at);
  const now = troubles.findIndex(same);
  const next = now < 0 ? (by > 0 ? 0 : troubles.length - 1) : (now + by + troubles.length) % troubles.length;
  const found = troubles[next];
  choose(found.moment !== undefined ? { moment: found.moment } : bar(found.row, found.depth, found.at));
  byId("trouble").textContent = `Trouble ${grouped(next + 1)} of ${grouped(troubles.length)} ›`;
}

const keys = {
  ArrowRight: () => along(1), ArrowLeft: () => along(-1), ArrowDown: () => toRow(1), ArrowUp: () => toRow(-1),
  Home: () => along(-Infinity), End: () => along(Infinity), Enter: () => zoomTo(view.chosen),
  "+": () => zoom(0.5, focusTime()), "=": () => zoom(0.5, focusTime()), "-": () => zoom(2, focusTime()),
  w: () => zoom(0.6, focusTime()), s: () => zoom(1 / 0.6, focusTime()), a: () => move(-0.25), d: () => move(0.25),
  0: () => show(0, data.span), n: () => toTrouble(1), N: () => toTrouble(-1), Escape: () => choose(null),
};
function focusTime() {
  const { chosen } = view;
  const at = !chosen ? null : chosen.moment !== undefined ? moments[chosen.moment].at : (Math.max(chosen.from, view.from) + Math.min(chosen.to, view.to)) / 2;
  return at !== null && at >= view.from && at <= view.to ? at : (view.from + view.to) / 2;
}

function listen() {
  canvas.addEventListener("keydown", (event) => {
    const act = keys[event.key] || keys[event.key.toLowerCase()];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act();
  });
  canvas.addEventListener("focus", () => view.chosen || say(null));
  // A wheel scrolls the rows; with Ctrl, as two fingers do, it zooms; sideways it moves.
  port.addEventListener("wheel", (event) => {
    const x = event.clientX - canvas.getBoundingClientRect().left;
    if (event.ctrlKey || event.metaKey) zoom(Math.exp(Math.max(-60, Math.min(60, event.deltaY)) / 120), timeAt(Math.max(gutter(), x)));
    else if (Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey) move((event.deltaX || event.deltaY) / (width - gutter()));
    else return;
    event.preventDefault();
  }, { passive: false });
  port.addEventListener("scroll", redraw);
  const down = new Map();
  let [travelled, apart] = [0, 0];
  const place = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  canvas.addEventListener("pointerdown", (event) => {
    down.set(event.pointerId, place(event));
    travelled = apart = 0;
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    const [x, y] = place(event);
    const before = down.get(event.pointerId);
    if (!before) {
      if (!view.pinned) say(under(x, y));
      return;
    }
    down.set(event.pointerId, [x, y]);
    if (down.size === 2) {
      const [one, other] = [...down.values()];
      const now = Math.max(20, Math.abs(one[0] - other[0]));
      if (apart) zoom(apart / now, timeAt((one[0] + other[0]) / 2));
      apart = now;
      travelled = 9;
      return;
    }
    travelled += Math.abs(x - before[0]) + Math.abs(y - before[1]);
    if (travelled > 4) {
      canvas.classList.add("dragged");
      move((before[0] - x) / (width - gutter()));
    }
  });
  const up = (event) => {
    const was = down.delete(event.pointerId);
    canvas.classList.remove("dragged");
    if (was && event.type === "pointerup" && travelled <= 4) choose(under(...place(event)), false);
  };
  canvas.addEventListener("pointerup", up);
  canvas.addEventListener("pointercancel", up);
  canvas.addEventListener("pointerleave", () => view.pinned || say(null));
  canvas.addEventListener("dblclick", (event) => zoomTo(under(...place(event))));
  strip();
  byId("zoom-in").addEventListener("click", () => zoom(0.5, focusTime()));
  byId("zoom-out").addEventListener("click", () => zoom(2, focusTime()));
  byId("whole").addEventListener("click", () => show(0, data.span));
  byId("trouble").addEventListener("click", () => toTrouble(1));
  byId("colour").addEventListener("change", (event) => {
    colourBy = event.target.value;
    legend();
    redraw();
  });
  new ResizeObserver(() => {
    if (port.clientWidth !== width) drawLabelsAgain();
    redraw();
  }).observe(port);
  const recolour = () => {
    readColours();
    legend();
    if (view.chosen) say(view.chosen);
    redraw();
  };
  addEventListener("themechange", recolour);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolour);
}

function drawLabelsAgain() {
  width = port.clientWidth;
  drawLabels();
}

// The strip of the whole: dragging chooses a part, a click moves there.
function strip() {
  const host = byId("overview");
  const at = (event) => {
    const box = host.getBoundingClientRect();
    return Math.max(0, Math.min(1, (event.clientX - box.left - gutter()) / (box.width - gutter()))) * data.span;
  };
  let start = null;
  host.addEventListener("pointerdown", (event) => {
    start = at(event);
    host.setPointerCapture(event.pointerId);
  });
  host.addEventListener("pointermove", (event) => {
    const now = at(event);
    if (start !== null && Math.abs(now - start) > data.span / 300) show(Math.min(start, now), Math.max(start, now));
  });
  host.addEventListener("pointerup", (event) => {
    const half = (view.to - view.from) / 2;
    if (start !== null && Math.abs(at(event) - start) <= data.span / 300) show(start - half, start + half);
    start = null;
  });
}

function pickBatch() {
  const select = byId("batch");
  const found = groups.filter((group) => group.kind === "batches").flatMap((group) => group.rows.flatMap((row) => row.levels.flatMap((of, depth) => Array.from({ length: of.count }, (_, at) => bar(row, depth, at)))));
  const single = found.filter((one) => !(one.count > 1)).sort((one, other) => one.from - other.from).slice(0, 3000);
  byId("batch-label").hidden = single.length < 2;
  select.append(el("option", { value: "" }, "all"));
  single.forEach((one, at) => {
    const words = `${one.name}${one.step === undefined ? "" : `, step ${grouped(one.step)}`}${several ? `, ${groups[one.row.group].process}` : ""}`;
    select.append(el("option", { value: String(at) }, words));
  });
  select.addEventListener("change", () => {
    const one = select.value === "" ? null : single[Number(select.value)];
    choose(one, false);
    if (!one) return show(0, data.span);
    const room = (one.to - one.from) * 0.03;
    return show(one.from - room, one.to + room);
  });
}

function legend() {
  const host = byId("legend");
  host.replaceChildren();
  const put = (words, draw) => {
    const swatch = el("canvas");
    const pen = sized(swatch, 22, 14);
    draw(pen);
    host.append(el("li", {}, swatch, el("bdi", {}, words)));
  };
  const box = (one) => (pen) => drawBar(pen, { depth: 0, name: "", status: "", ...one }, 0, 0, 22, 14);
  const seen = new Set(layout.rows.flatMap(({ row }) => row.levels.flatMap((of) => of.status)).map((each) => STATUS[each]));
  if (colourBy === "function") functionNames.slice(0, 16).forEach((name) => put(name, (pen) => drawBar(pen, { depth: 0, name, status: "ok" }, 0, 0, 22, 14)));
  for (const status of STATUS.slice(1)) if (seen.has(status) && (colourBy === "status" || status !== "ok")) put(status, box({ status }));
  const all = layout.rows.flatMap(({ row }) => row.levels);
  if (all.some((of) => Object.values(of.more).some((more) => more.attempt > 1))) put("tried again", box({ status: "ok", attempt: 2 }));
  if (all.some((of) => of.status.includes(0))) put("batch or frame", box({}));
  if (all.some((of) => of.name.some((name) => text(name) === "queue"))) put("still queued", box({ name: "queue" }));
  if (data.resolution) put("several together, some failed", box({ status: "error", count: 4, bad: 1, busy: 1, from: 0, to: 1 }));
  if (groups.some((group) => group.full.length)) put("at its limit, calls wait", (pen) => {
    pen.fillStyle = ink.load;
    pen.fillRect(0, 5, 22, 9);
    pen.fillStyle = ink.limit;
    pen.fillRect(0, 1, 22, 3);
  });
  for (const name of [...new Set(moments.map((moment) => moment.name))].slice(0, 8)) put(name, (pen) => momentMark(pen, name, 11, 7));
}

function start() {
  for (const id of ["controls", "stage"]) byId(id).hidden = false;
  byId("rows").style.height = `${layout.height}px`;
  byId("trouble").hidden = !troubles.length;
  byId("trouble").textContent = `${grouped(troubles.length)} ${troubles.length === 1 ? "trouble" : "troubles"} ›`;
  readColours();
  drawLabelsAgain();
  listen();
  pickBatch();
  legend();
  say(null);
  drawAll();
}

start();
