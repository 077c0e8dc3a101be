// Draws the part of the trace that is in view: the strip of the whole, the axis, rows and loads.

const view = { from: 0, to: data.span || 1, chosen: null, pinned: false, resting: true };
const port = byId("view");
const canvas = byId("bars");
const FONT = '11px system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif';
// What was drawn last: the row's number, depth, place, x and width of each bar.
let painted = [];
let width = 0;
const gutter = () => (width < 560 ? 78 : 176);
const across = (at) => gutter() + ((at - view.from) / (view.to - view.from)) * (width - gutter());
const timeAt = (x) => view.from + ((x - gutter()) / (width - gutter())) * (view.to - view.from);

const timeMarks = () => {
  const [from, to] = [seconds(view.from), seconds(view.to)];
  return ticks(from, to, Math.max(2, (width - gutter()) / 110));
};

// A time after the start, with as many digits as tell it from its neighbours.
function clock(at, step) {
  if (at >= 120 && step >= 1) {
    const whole = Math.round(at);
    return `${Math.floor(whole / 60)}:${String(whole % 60).padStart(2, "0")} min`;
  }
  const [unit, times] = seconds(view.to) >= 1 || step >= 0.1 ? ["s", 1] : step >= 1e-4 ? ["ms", 1e3] : ["µs", 1e6];
  const digits = Math.max(0, Math.min(9, Math.ceil(-Math.log10(step * times) - 1e-9)));
  return `${(at * times).toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits })} ${unit}`;
}

function drawAxis() {
  const pen = sized(byId("axis"), width, 26);
  const marks = timeMarks();
  const step = marks.length > 1 ? marks[1] - marks[0] : 1;
  pen.font = FONT;
  pen.textBaseline = "middle";
  pen.fillStyle = ink.muted;
  for (const mark of marks) {
    const x = across((mark * 1e9) / data.unit);
    if (x < gutter() - 1) continue;
    stroke(pen, ink.rule, 1, [[x + 0.5, 18], [x + 0.5, 26]]);
    const words = clock(mark, step);
    const wide = pen.measureText(words).width;
    pen.fillText(words, Math.max(gutter() + 2, Math.min(width - wide - 2, x - wide / 2)), 10);
  }
  pen.fillText(width < 560 ? "" : "after the start", 12, 10);
}

let density = null;
// How many calls ran, and where one failed, over the width of the strip.
function densities(wide) {
  if (density?.wide === wide) return density;
  const [busy, bad] = [new Float64Array(wide + 1), new Uint8Array(wide + 1)];
  const scale = wide / (data.span || 1);
  for (const group of groups) {
    if (["batches", "function"].includes(group.kind)) continue;
    for (const row of group.rows) for (const of of row.levels) {
      for (let at = 0; at < of.count; at++) {
        if (!of.status[at]) continue;
        const [from, to] = [of.from[at] * scale, Math.max(of.to[at] * scale, of.from[at] * scale + 1e-6)];
        const share = of.more[at]?.busy !== undefined ? Math.min(1, (of.more[at].busy * scale) / (to - from)) : 1;
        for (let x = Math.floor(from); x < to && x < wide; x++) busy[x] += share * (Math.min(to, x + 1) - Math.max(from, x));
        if (isTrouble(of, at)) bad[Math.min(wide, Math.floor(to))] = 1;
      }
    }
  }
  const most = busy.reduce((one, other) => Math.max(one, other), 1e-9);
  return (density = { wide, busy, bad, most });
}

function drawOverview() {
  const pen = sized(byId("overview"), width, 44);
  const wide = Math.max(1, Math.floor(width - gutter()));
  pen.font = FONT;
  pen.textBaseline = "middle";
  pen.fillStyle = ink.muted;
  pen.fillText(width < 560 ? "calls" : "calls at a time", 12, 22);
  pen.translate(gutter(), 0);
  const { busy, bad, most } = densities(wide);
  pen.fillStyle = ink["ok-edge"];
  for (let x = 0; x < wide; x++) {
    const high = (busy[x] / most) * 34;
    pen.fillRect(x, 44 - high, 1, high);
  }
  pen.fillStyle = ink.error;
  for (let x = 0; x < wide; x++) if (bad[x]) pen.fillRect(x - 0.5, 0, 2, 6);
  pen.fillStyle = ink.limit;
  for (const moment of moments) if (!HARMLESS.has(moment.name)) pen.fillRect((moment.at / data.span) * wide - 0.5, 0, 2, 8);
  const [from, to] = [(view.from / data.span) * wide, (view.to / data.span) * wide];
  if (to - from < wide - 1) {
    pen.fillStyle = ink.window;
    pen.fillRect(from, 0, Math.max(2, to - from), 44);
    pen.strokeStyle = ink.focus;
    pen.lineWidth = 1.5;
    pen.strokeRect(from + 0.75, 0.75, Math.max(2, to - from - 1.5), 42.5);
  }
}

function drawLoad(pen, load, y) {
  const { t, v } = load.group.counters[load.name];
  const limit = load.name === "in flight" ? load.group.counters.limit : null;
  const highest = v.reduce((one, other) => Math.max(one, other), 1);
  const bound = limit ? limit.v.reduce((one, other) => Math.max(one, other), 0) : 0;
  const most = bound && bound < 4 * highest ? Math.max(bound, highest) : highest;
  const up = (value) => y + load.height - (Math.min(value, most) / most) * (load.height - 3);
  pen.fillStyle = load.name === "queued" ? ink.waiting : ink.load;
  let last = -1;
  for (let at = Math.max(0, firstOf(t, view.from) - 1); at < t.length && t[at] <= view.to; at++) {
    const from = Math.max(gutter(), across(t[at]));
    const to = Math.min(width, across(at + 1 < t.length ? t[at + 1] : data.span));
    if (to <= gutter() || (to - last < 0.3 && at + 1 < t.length && v[at] === 0)) continue;
    pen.fillRect(from, up(v[at]), Math.max(0.6, to - from), y + load.height - up(v[at]));
    last = to;
  }
  if (limit && bound <= most) {
    pen.setLineDash([4, 3]);
    stroke(pen, ink.limit, 1.2, [[gutter(), Math.round(up(bound)) + 0.5], [width, Math.round(up(bound)) + 0.5]]);
    pen.setLineDash([]);
  }
  if (load.name !== "in flight") return;
  pen.fillStyle = ink.limit;
  for (const [from, to] of load.group.full) {
    if (to < view.from || from > view.to) continue;
    const [x0, x1] = [Math.max(gutter(), across(from)), Math.min(width, across(to))];
    pen.fillRect(x0, y - 1, Math.max(1, x1 - x0), 3);
  }
}

function firstOf(times, at) {
  let [low, high] = [0, times.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle] < at) low = middle + 1;
    else high = middle;
  }
  return low;
}

function drawRow(pen, { row, height }, y) {
  const start = gutter();
  // What is queued is drawn upon the batch, but not upon its name.
  const later = groups[row.group].kind === "function" ? [] : null;
  row.levels.forEach((of, depth) => {
    let [pixel, worst] = [-1, -1];
    for (let at = firstAfter(of, view.from); at < of.count && of.from[at] <= view.to; at++) {
      const [x0, x1] = [across(of.from[at]), across(of.to[at])];
      if (x1 - x0 < 1) {
        // Below a pixel: one line, of the worst that happened there.
        const here = Math.max(start, Math.floor(x0));
        if (here === pixel && of.status[at] <= worst) continue;
        [pixel, worst] = [here, of.status[at]];
        const [ground] = colours(STATUS[worst]);
        pen.fillStyle = STATUS[worst] === "ok" ? ink["ok-edge"] : worst ? ground : ink["frame-edge"];
        pen.fillRect(here, y + (of.depth ? 2 : 0), 1, height - (of.depth ? 4 : 0));
        painted.push([row.number, depth, at, here, 1]);
        continue;
      }
      const left = Math.max(start - 4, x0);
      // A gap of a hair tells neighbours apart.
      const wide = Math.min(width + 4, x1) - left - (x1 - x0 > 3 && !of.more[at]?.count ? 0.6 : 0);
      drawBar(pen, { ...bar(row, depth, at), depth: of.depth }, left, y, wide, height, later);
      painted.push([row.number, depth, at, left, wide]);
    }
  });
  later?.forEach((draw) => draw());
}

function drawRows() {
  const top = port.scrollTop;
  const height = Math.min(port.clientHeight, layout.height) || 1;
  const pen = sized(canvas, width, height);
  pen.font = FONT;
  pen.textBaseline = "middle";
  painted = [];
  const seen = (each, high) => each.y + high >= top && each.y <= top + height;
  for (const mark of timeMarks()) {
    const x = Math.round(across((mark * 1e9) / data.unit)) + 0.5;
    if (x >= gutter()) stroke(pen, ink.grid, 1, [[x, 0], [x, height]]);
  }
  for (const group of groups.filter((each) => each.kind === "batches")) for (const row of group.rows) for (const of of row.levels) {
    for (let at = firstOf(of.from, view.from), drawn = 0; at < of.count && of.from[at] <= view.to && drawn < 400; at++, drawn++) {
      const x = Math.round(across(of.from[at])) + 0.5;
      if (!of.depth && width - gutter() > 3 * drawn) stroke(pen, ink.rule, 1, [[x, 0], [x, height]]);
    }
  }
  pen.save();
  pen.beginPath();
  pen.rect(gutter(), 0, width - gutter(), height);
  pen.clip();
  for (const each of layout.loads) if (seen(each, each.height)) drawLoad(pen, each, each.y - top);
  for (const each of layout.rows) if (seen(each, each.height)) drawRow(pen, each, each.y - top);
  for (const moment of moments) {
    if (moment.at < view.from || moment.at > view.to) continue;
    const where = momentPlace(moment);
    if (seen({ y: where - 8 }, 16)) momentMark(pen, moment.name, Math.max(gutter() + 7, Math.min(width - 8, across(moment.at))), where - top);
  }
  if (view.chosen) drawChosen(pen, top);
  pen.restore();
  for (const each of layout.heads) {
    if (!seen(each, HEAD)) continue;
    pen.fillStyle = ink.group;
    pen.fillRect(0, each.y - top, width, HEAD - 3);
    for (const moment of moments.filter((one) => one.row < 0 && one.group === each.group.number && one.at >= view.from && one.at <= view.to)) {
      momentMark(pen, moment.name, Math.max(gutter() + 7, across(moment.at)), momentPlace(moment) - top);
    }
  }
}

const momentPlace = (moment) => {
  const at = moment.row < 0 ? null : layout.rows[groups[moment.group].rows[moment.row].number];
  return at ? at.y + at.height / 2 : layout.heads[moment.group].y + (HEAD - 3) / 2;
};

// Around the chosen bar: how long it waited, and the other attempts.
function drawChosen(pen, top) {
  const { chosen } = view;
  if (chosen.moment !== undefined) {
    const y = momentPlace(moments[chosen.moment]) - top;
    pen.strokeStyle = ink.text;
    pen.lineWidth = 2;
    pen.beginPath();
    pen.arc(across(moments[chosen.moment].at), y, 10, 0, 7);
    pen.stroke();
    return;
  }
  const at = layout.rows[chosen.row.number];
  const middle = (each) => layout.rows[each.row.number].y - top + layout.rows[each.row.number].height / 2;
  const y = middle(chosen);
  if (chosen.queue > 0) {
    const from = across(chosen.from - chosen.queue);
    stroke(pen, ink.text, 1.2, [[from, y], [across(chosen.from), y]], [[from, y - 4], [from, y + 4]]);
  }
  const tries = attempts(chosen);
  tries.slice(1).forEach((next, place) => {
    const before = tries[place];
    const [x0, y0, x1, y1] = [across(before.to), middle(before), across(next.from), middle(next)];
    const bend = Math.max(12, Math.abs(x1 - x0) / 2);
    pen.strokeStyle = ink.focus;
    pen.lineWidth = 1.6;
    pen.beginPath();
    pen.moveTo(x0, y0);
    pen.bezierCurveTo(x0 + bend, y0, x1 - bend, y1, x1, y1);
    pen.stroke();
    stroke(pen, ink.focus, 1.6, [[x1 - 6, y1 - 4], [x1, y1], [x1 - 6, y1 + 4]]);
  });
  const [x0, x1] = [across(chosen.from), across(chosen.to)];
  pen.strokeStyle = ink.text;
  pen.lineWidth = 2;
  rounded(pen, x0 - 1.5, at.y - top - 1, Math.max(3, x1 - x0 + 3), at.height + 2, 4);
  pen.stroke();
}

const byCall = new Map();
// The attempts at the call of a bar, in their order; itself alone if there was one.
function attempts(one) {
  if (one.sample < 0 || !one.status || one.count > 1) return [one];
  if (!byCall.size) {
    byCall.set(null, []);
    for (const { row } of layout.rows) row.levels.forEach((of, depth) => {
      for (let at = 0; at < of.count; at++) {
        const more = of.more[at];
        if (more?.attempt > 1) byCall.set(key(bar(row, depth, at)), []);
      }
    });
    if (byCall.size > 1) for (const { row } of layout.rows) row.levels.forEach((of, depth) => {
      for (let at = 0; at < of.count; at++) if (of.sample[at] >= 0 && of.status[at]) byCall.get(key(bar(row, depth, at)))?.push(bar(row, depth, at));
    });
  }
  const found = byCall.get(key(one));
  return found?.length ? found.sort((first, second) => first.from - second.from) : [one];
}
const key = (one) => `${groups[one.row.group].process}\n${one.name}\n${one.batch}\n${one.sample}\n${one.call ?? ""}`;

const TITLES = { workers: "Workers", threads: "Threads", "event loops": "Event loops", endpoints: "Requests to servers" };

function drawLabels() {
  const host = byId("labels");
  host.replaceChildren();
  const put = (kind, y, height, wide, ...parts) => {
    const made = el("div", { class: kind }, ...parts);
    made.style.top = `${y}px`;
    made.style.height = made.style.lineHeight = `${height}px`;
    if (wide) made.style.width = `${wide}px`;
    host.append(made);
  };
  const plural = (count, what) => `${grouped(count)} ${what}${count === 1 ? "" : "s"}`;
  const parts = { workers: "worker", threads: "thread", "event loops": "track", endpoints: "track" };
  for (const { group, y, process } of layout.heads) {
    const lane = group.lane ? `${group.lane} lane` : parts[group.kind] ? plural(group.rows.length, parts[group.kind]) : "";
    const chips = [lane, process].filter(Boolean).map((words) => el("span", { class: "chip" }, el("bdi", {}, words)));
    put("group", y, HEAD - 3, null, el("bdi", {}, group.kind === "batches" ? "Batches" : TITLES[group.kind] || group.title), ...chips);
  }
  for (const { group, name, y, height } of layout.loads) {
    const most = group.counters[name].v.reduce((one, other) => Math.max(one, other), 0);
    const limit = name === "in flight" && group.counters.limit ? ` of ${grouped(group.counters.limit.v[group.counters.limit.v.length - 1])}` : "";
    put("row", y, height, gutter(), width < 560 ? name : `${name} ≤ ${grouped(most)}${limit}`);
  }
  for (const { y, height, label: words } of layout.rows) if (words) put("row", y, Math.max(height, 13), gutter(), el("bdi", {}, words));
}
