// The trace as rows: what the page's data holds, taken apart into arrays, and where each row
// stands.

const STATUS = data.statuses;
const FAILED = new Set(["timeout", "error", "crashed", "cancelled"].map((name) => STATUS.indexOf(name)));
const text = (place) => (place < 0 ? "" : data.texts[place]);
const seconds = (units) => (units * data.unit) / 1e9;

const column = (values, count) => (Array.isArray(values) ? values : new Array(count).fill(values));
const summed = (gaps) => {
  let at = 0;
  return gaps.map((gap) => (at += gap));
};

// One row and depth. `to` is where a bar ends on the page: an open one at the end of the trace.
function level(columns, depth) {
  const count = columns.t.length;
  const from = Float64Array.from(summed(columns.t));
  const length = column(columns.d, count);
  return {
    depth, count, from, open: length.map((each) => each < 0),
    to: Float64Array.from(length, (each, at) => (each < 0 ? data.span : from[at] + each)),
    name: column(columns.n, count), status: column(columns.s, count), batch: column(columns.b, count),
    sample: column(columns.k, count), queue: column(columns.q, count), more: columns.x,
  };
}

const groups = data.groups.map((group, number) => ({
  ...group, number, title: text(group.title), process: data.processes[group.process],
  rows: group.rows.map((row, at) => ({ at, group: number, label: text(row.label), track: text(row.track), levels: row.levels.map(level) })),
  counters: Object.fromEntries(Object.entries(group.counters).map(([name, counter]) => [name, { t: summed(counter.t), v: counter.v }])),
}));
const moments = data.moments.map(([group, row, at, name, reason]) => ({ group, row, at, name: text(name), reason: text(reason) })).sort((one, other) => one.at - other.at);
const HARMLESS = new Set(["worker ready", "worker restarted", "calls returned to the queue", "circuit breaker closed"]);
const functionNames = groups.filter((group) => group.kind === "function").map((group) => group.title);
const functionMark = new Map(functionNames.map((name, number) => [name, `--c${number % 8}`]));
const several = new Set(groups.map((group) => group.process)).size > 1;

// The row's bars, each as [level, place]; all of them in the order of their beginnings.
const flat = (row) =>
  row.levels
    .flatMap((each, depth) => Array.from({ length: each.count }, (_, at) => [depth, at]))
    .sort((one, other) => row.levels[one[0]].from[one[1]] - row.levels[other[0]].from[other[1]] || one[0] - other[0]);

// What a bar is, for the readout and for tests.
function bar(row, depth, at) {
  const of = row.levels[depth];
  return {
    row, depth, at, from: of.from[at], to: of.to[at], open: of.open[at], name: of.name[at] < 0 ? "several" : text(of.name[at]),
    status: STATUS[of.status[at]], batch: of.batch[at], sample: of.sample[at], queue: of.queue[at], ...(of.more[at] || {}),
  };
}

const isTrouble = (of, at) => FAILED.has(of.status[at]) || Boolean(of.more[at]?.bad);

// The first bar of a level that ends after a time.
function firstAfter(of, at) {
  let [low, high] = [0, of.count];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (of.to[middle] < at) low = middle + 1;
    else high = middle;
  }
  return low;
}

// Heights: groups of many rows have thin ones.
const HEAD = 24;
const LOAD = 22;
const layout = { height: 0, rows: [], heads: [], loads: [] };

function place() {
  Object.assign(layout, { height: 0, rows: [], heads: [], loads: [] });
  let process = null;
  for (const group of groups) {
    layout.heads.push({ group, y: layout.height, process: several && group.process !== process ? group.process : "" });
    process = group.process;
    layout.height += HEAD;
    for (const name of ["queued", "in flight"]) {
      if (!group.counters[name]?.t.length) continue;
      layout.loads.push({ group, name, y: layout.height, height: LOAD });
      layout.height += LOAD + 2;
    }
    const height = group.rows.length > 40 ? 7 : group.rows.length > 16 ? 12 : 20;
    let label = null;
    for (const row of group.rows) {
      const shown = row.label === label ? "" : row.label;
      label = row.label;
      layout.rows.push({ row, y: layout.height, height, label: shown });
      layout.height += height + (height > 10 ? 2 : 1);
    }
    layout.height += 6;
  }
}
place();

const troubles = [];
layout.rows.forEach((each, number) => {
  each.row.number = number;
  each.row.levels.forEach((of, depth) => {
    for (let at = 0; at < of.count; at++) if (isTrouble(of, at)) troubles.push({ from: of.from[at], row: each.row, depth, at });
  });
});
moments.forEach((moment, at) => {
  if (!HARMLESS.has(moment.name)) troubles.push({ from: moment.at, moment: at });
});
troubles.sort((one, other) => one.from - other.from);
