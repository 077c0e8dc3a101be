// The page: filters by function and by range, and every section drawn from the figures for them.

const LAST = data.first.length - 1;
const PALETTE = 8;
const mark = (number) => `var(--c${number % PALETTE})`;
const state = { from: 0, to: LAST, on: new Set(data.functions.map((_, number) => number).slice(0, 12)) };
const range = () => Array.from({ length: state.to - state.from + 1 }, (_, at) => state.from + at);
// Rows without a step count where nothing is left out.
const chosen = () => (state.from === 0 && state.to === LAST ? [...range(), LAST + 1] : range());
const total = (values, places = chosen()) => places.reduce((sum, at) => sum + (values[at] || 0), 0);
const share = (part, whole) => (whole ? part / whole : null);
const shown = () => data.functions.map((each, number) => ({ ...each, number })).filter((each) => state.on.has(each.number));
const x = () => range().map((at) => (data.first[at] + data.last[at]) / 2);
const where = (at) => {
  const place = state.from + at;
  const [first, last] = [data.first[place], data.last[place]];
  return `${data.kind} ${grouped(first)}${first === last ? "" : `–${grouped(last)}`}`;
};

// Mean and deviation of the chosen buckets, from those of each.
function moments(each, places = chosen()) {
  let [count, mean, squares] = [0, 0, 0];
  for (const at of places) {
    if (!each.n[at]) continue;
    const apart = each.mean[at] - mean;
    squares += each.m2[at] + (apart * apart * count * each.n[at]) / (count + each.n[at]);
    mean += (apart * each.n[at]) / (count + each.n[at]);
    count += each.n[at];
  }
  return { count, mean: count ? mean : null, std: count > 1 ? Math.sqrt(squares / (count - 1)) : null };
}

// Counts by bin, of pairs [bin, count, bin, count, …].
function binned(pairs, places) {
  const found = new Map();
  for (const at of places) {
    const given = pairs[at] || [];
    for (let place = 0; place < given.length; place += 2) found.set(given[place], (found.get(given[place]) || 0) + given[place + 1]);
  }
  return found;
}

function percentile(counts, part) {
  const bins = [...counts.keys()].sort((one, other) => one - other);
  const all = bins.reduce((sum, bin) => sum + counts.get(bin), 0);
  let below = 0;
  for (const bin of bins) {
    below += counts.get(bin);
    if (below >= part * all) return 10 ** (data.times.least + (bin + 0.5) / data.times.per_decade);
  }
  return null;
}

const failed = (each) => data.failed.map((label) => each.status[label]).filter(Boolean);
const failedAt = (each, at) => failed(each).reduce((sum, counts) => sum + (counts[at] || 0), 0);
const rowsAt = (each, at) => Object.values(each.status).reduce((sum, counts) => sum + (counts[at] || 0), 0);
const sum = (places, of) => places.reduce((found, at) => found + of(at), 0);

function cell(text, numeric = true) {
  return el("td", numeric ? { class: "number" } : {}, text);
}

function head(table, names) {
  const row = el("tr");
  for (const name of names) row.append(el("th", { scope: "col", ...(name.startsWith("#") ? { class: "number" } : {}) }, name.replace(/^#/, "")));
  table.replaceChildren(el("thead", {}, row));
  return table.appendChild(el("tbody"));
}

function drawTable() {
  const body = byId("function-table").tBodies[0];
  body.replaceChildren();
  const places = chosen();
  for (const each of shown()) {
    const { mean, std } = moments(each);
    const rows = sum(places, (at) => rowsAt(each, at));
    const none = total(each.status.abstained || [], places) + total(each.status.skipped || [], places);
    const [run, wait] = [binned(each.run, places), binned(each.queue, places)];
    const money = total(each.cost, places);
    body.append(
      el("tr", {}, el("th", { scope: "row" }, el("bdi", {}, each.name)), cell(format.number(each.weight)), cell(grouped(rows)),
        cell(format.number(mean)), cell(format.number(std)), cell(format.share(share(total(each.same, places), total(each.groups, places)))),
        cell(format.share(share(sum(places, (at) => failedAt(each, at)), rows))), cell(format.share(share(none, rows))),
        cell(format.seconds(percentile(run, 0.5))), cell(format.seconds(percentile(run, 0.99))), cell(format.seconds(percentile(wait, 0.5))),
        cell(money ? format.money(money) : "–")),
    );
  }
}

function rewardChart(host, each, name, colour, tall, versions) {
  const values = range().map((at) => (each.n[at] ? each.mean[at] : null));
  const spread = range().map((at) => (each.n[at] > 1 ? Math.sqrt(each.m2[at] / (each.n[at] - 1)) : 0));
  const bound = (sign, end) => values.map((value, at) => (value === null ? null : sign * Math.min(sign * (value + sign * spread[at]), sign * end)));
  const whole = moments(each);
  lineChart(host, {
    title: name, heading: colour, tall, format: format.number, x: x(), versions,
    series: [{ name: "mean", mark: colour, values, low: bound(-1, each.min), high: bound(1, each.max) }],
    rest: `mean ${format.number(whole.mean)} ± ${format.number(whole.std)}, ${grouped(whole.count)} rewards`,
    read: (at) => `${where(at)}: ${format.number(values[at])} ± ${format.number(spread[at])}, ${grouped(each.n[state.from + at])} rewards`,
  });
}

function drawRewards() {
  for (const id of ["total-chart", "reward-charts"]) byId(id).replaceChildren();
  if (data.total) rewardChart(byId("total-chart"), data.total, "Total reward (weighted sum of all functions)", "var(--text)", true, []);
  for (const each of shown()) {
    const versions = each.versions.slice(1).filter((one) => one >= state.from && one <= state.to).map((one) => ({ x: data.first[one] }));
    rewardChart(byId("reward-charts"), each, each.name, mark(each.number), false, versions);
  }
}

function drawHistograms() {
  const host = byId("histograms");
  host.replaceChildren();
  for (const each of shown()) {
    const counts = binned(each.histogram, chosen());
    const bins = each.values ? each.values.length : each.edges.length - 1;
    const bars = Array.from({ length: bins }, (_, at) => ({
      count: counts.get(at) || 0,
      name: each.values ? format.number(each.values[at]) : `${format.number(each.edges[at])} to ${format.number(each.edges[at + 1])}`,
    }));
    const labels = each.values
      ? each.values.map((value, at) => ({ at: at + 0.5, text: format.number(value) })).filter((_, at) => bins <= 7 || at % Math.ceil(bins / 7) === 0)
      : [0, 0.25, 0.5, 0.75, 1].map((part) => ({ at: part * bins, text: format.number(each.edges[0] + part * (each.edges[bins] - each.edges[0])) }));
    const { count, mean } = moments(each);
    barChart(host, {
      title: each.name, heading: mark(each.number), mark: mark(each.number), bars, labels, apart: Boolean(each.values),
      rest: `${grouped(count)} rewards, mean ${format.number(mean)}`,
    });
  }
}

function drawGroups() {
  for (const id of ["group-total", "group-charts"]) byId(id).replaceChildren();
  const of = data.total || data.functions[0];
  const shares = (counts) => range().map((at) => share(counts[at], of.groups[at]));
  const stacked = ["best", "worst", "same"].map((name) => shares(of[name]));
  const other = stacked[2].map((same, at) => (same === null ? null : same - stacked[0][at] - stacked[1][at]));
  const bases = [stacked[1], stacked[1].map((value, at) => (value === null ? null : value + other[at]))];
  const zero = stacked[2].map((value) => (value === null ? null : 0));
  const places = chosen();
  const parts = (at) => `too hard ${format.share(stacked[1][at])}, too easy ${format.share(stacked[0][at])}, other ${format.share(other[at])}`;
  lineChart(byId("group-total"), {
    title: data.total ? "Total reward" : of.name, tall: true, stack: true, format: format.share, x: x(), least: 0,
    series: [
      { name: "too hard: all at the lowest", mark: "var(--c1)", values: stacked[1], low: zero },
      { name: "the same in between", mark: "var(--c7)", values: bases[1], low: bases[0] },
      { name: "too easy: all at the highest", mark: "var(--c0)", values: stacked[2], low: bases[1] },
    ],
    rest: `${format.share(share(total(of.same, places), total(of.groups, places)))} of ${grouped(total(of.groups, places))} groups`,
    read: (at) => `${where(at)}: ${format.share(stacked[2][at])} of ${grouped(of.groups[state.from + at])} groups; ${parts(at)}`,
  });
  for (const each of shown()) {
    const values = range().map((at) => share(each.same[at], each.groups[at]));
    lineChart(byId("group-charts"), {
      title: each.name, heading: mark(each.number), format: format.share, x: x(), least: 0, most: 1,
      series: [{ name: "same reward", mark: mark(each.number), values }],
      rest: `${format.share(share(total(each.same, places), total(each.groups, places)))} of ${grouped(total(each.groups, places))} groups`,
      read: (at) => `${where(at)}: ${format.share(values[at])} of ${grouped(each.groups[state.from + at])} groups`,
    });
  }
}

function correlation(one, other) {
  const pair = data.correlation.pairs.find((each) => each[0] === Math.min(one, other) && each[1] === Math.max(one, other));
  if (!pair) return null;
  if (!data.correlation.by_bucket) return pair[2];
  const [counts, xs, ys, xx, yy, xy] = pair[2];
  // Number of samples, means, squared deviations and their products, bucket by bucket.
  let [n, mx, my, vx, vy, c] = [0, 0, 0, 0, 0, 0];
  for (const at of chosen().filter((place) => counts[place])) {
    const [dx, dy, weight] = [xs[at] - mx, ys[at] - my, (n * counts[at]) / (n + counts[at])];
    [vx, vy, c] = [vx + xx[at] + dx * dx * weight, vy + yy[at] + dy * dy * weight, c + xy[at] + dx * dy * weight];
    n += counts[at];
    [mx, my] = [mx + (dx * counts[at]) / n, my + (dy * counts[at]) / n];
  }
  // Means have seven digits here: what they leave of a constant is not its deviation.
  if (n < 3 || vx <= n * (1e-7 * mx) ** 2 || vy <= n * (1e-7 * my) ** 2) return null;
  return Math.max(-1, Math.min(1, c / Math.sqrt(vx * vy)));
}

function drawCorrelation() {
  const functions = shown();
  byId("correlation").hidden = data.functions.length < 2;
  byId("correlation-note").textContent = `Pearson's r of the rewards of the same sample, ${data.correlation.by_bucket ? "in the chosen steps" : "of the whole journal: there are too many functions to choose steps"}. “–”: one of the two is constant, or they share too few samples.`;
  const body = head(byId("matrix"), ["", ...functions.map((each) => `#${each.name}`)]);
  for (const one of functions) {
    const row = el("tr", {}, el("th", { scope: "row" }, el("bdi", {}, one.name)));
    for (const other of functions) {
      if (one === other) {
        row.append(el("td", { class: "muted" }, "1"));
        continue;
      }
      const r = correlation(one.number, other.number);
      const made = el("td", {}, r === null ? "–" : r.toFixed(2).replace("-", "−"));
      if (r !== null) made.style.background = `rgba(var(${r < 0 ? "--low" : "--high"}), ${(0.5 * Math.abs(r)).toFixed(2)})`;
      row.append(made);
    }
    body.append(row);
  }
}

function drawAll() {
  byId("range").textContent = `${data.kind} ${grouped(data.first[state.from])}–${grouped(data.last[state.to])}`;
  for (const draw of [drawTable, drawRewards, drawHistograms, drawGroups, drawCorrelation, drawFailures, drawLatency, drawSlowest, drawCost, drawJudges, drawSamples]) draw();
}
