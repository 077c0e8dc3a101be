// The sections about failures, times, cost, judges and samples; then the page starts.

const isChosen = (row) => state.on.has(row.function) && (row.step === null ? state.to === LAST && state.from === 0 : row.bucket >= state.from && row.bucket <= state.to);
const place = (row) => `${row.step === null ? "" : `${data.kind} ${grouped(row.step)}, `}rank ${row.rank}, batch ${row.batch}, sample ${row.sample}`;

function drawFailures() {
  byId("failure-chart").replaceChildren();
  const functions = shown().filter((each) => failed(each).length);
  const places = chosen();
  const table = byId("reasons");
  table.replaceChildren();
  const none = el("p", { class: "muted" }, "No call of the chosen functions failed.");
  if (!functions.length) return void byId("failure-chart").append(none);
  const series = functions.map((each) => ({
    name: each.name, mark: mark(each.number), values: range().map((at) => share(failedAt(each, at), rowsAt(each, at))),
  }));
  const all = sum(places, (at) => functions.reduce((found, each) => found + failedAt(each, at), 0));
  lineChart(byId("failure-chart"), {
    title: "Share of samples that failed", legend: true, tall: true, format: format.share, x: x(), least: 0, series,
    rest: `${grouped(all)} failures`,
    read: (at) => `${where(at)}: ${series.map((each) => `${each.name} ${format.share(each.values[at])}`).join(", ")}`,
  });
  const reasons = data.failures.map((each) => ({ ...each, now: places.reduce((found, at) => found + (each.buckets[at] || 0), 0) }));
  const body = head(table, ["Function", "Status", "#Count", "Reason and examples"]);
  for (const each of reasons.filter((one) => one.now && state.on.has(one.function)).sort((one, other) => other.now - one.now).slice(0, 40)) {
    const made = el("details", {}, el("summary", {}, el("bdi", {}, each.reason)));
    for (const example of each.examples) {
      made.append(el("p", { class: "small muted" }, `${place(example)}, after ${format.seconds(example.run_s)}, ${example.attempts} ${example.attempts === 1 ? "attempt" : "attempts"}`));
      made.append(el("pre", {}, example.traceback ? `${example.reason}\n\n${example.traceback}` : example.reason));
    }
    body.append(el("tr", {}, el("th", { scope: "row" }, el("bdi", {}, data.functions[each.function].name)), cell(each.status, false), cell(grouped(each.now)), el("td", { class: "reason" }, made)));
  }
}

function drawLatency() {
  const host = byId("latency-charts");
  host.replaceChildren();
  const parts = [["p50", 0.5, "none"], ["p90", 0.9, "5 3"], ["p99", 0.99, "2 3"]];
  for (const each of shown()) {
    for (const [what, pairs] of [["running", each.run], ["waiting", each.queue]]) {
      const over = range().map((at) => binned(pairs, [at]));
      const whole = binned(pairs, chosen());
      if (!whole.size) continue;
      const series = parts.map(([name, part, dash], number) => ({
        name, dash, mark: number === 2 ? "var(--c1)" : number === 1 ? "var(--c4)" : "var(--c0)", values: over.map((counts) => percentile(counts, part)),
      }));
      const words = (value) => parts.map(([name], number) => `${name} ${format.seconds(value(number))}`).join(", ");
      lineChart(host, {
        title: `${each.name}: ${what}`, heading: mark(each.number), format: format.seconds, log: true, x: x(), series,
        rest: words((number) => percentile(whole, parts[number][1])),
        read: (at) => `${where(at)}: ${words((number) => series[number].values[at])}`,
      });
    }
  }
}

function drawSlowest() {
  const body = head(byId("slowest"), ["Function", `#${data.kind === "step" ? "Step" : "Batch"}`, "#Rank", "#Sample", "Status", "#Run", "#Waited", "#Attempts", "#Reward"]);
  for (const row of data.slowest.filter(isChosen).slice(0, 20)) {
    body.append(el("tr", {}, el("th", { scope: "row" }, el("bdi", {}, data.functions[row.function].name)), cell(row.step === null ? "–" : grouped(row.step)), cell(String(row.rank)), cell(grouped(row.sample)), cell(row.status, false), cell(format.seconds(row.run_s)), cell(format.seconds(row.queue_s)), cell(String(row.attempts)), cell(format.number(row.reward))));
  }
}

function drawCost() {
  const host = byId("cost-charts");
  host.replaceChildren();
  const places = chosen();
  const usage = (each) => total(each.cost) + total(each.prompt_tokens) + total(each.completion_tokens);
  byId("cost").hidden = !data.functions.some((each) => [each.cost, each.prompt_tokens, each.completion_tokens].some((values) => values.some(Boolean)));
  if (byId("cost").hidden) return;
  const functions = shown().filter(usage);
  const costly = functions.filter((each) => total(each.cost, places));
  if (costly.length) {
    const series = costly.map((each) => {
      let so_far = 0;
      return { name: each.name, mark: mark(each.number), values: range().map((at) => (so_far += each.cost[at] || 0)) };
    });
    lineChart(host, {
      title: "Cost so far", legend: true, format: format.money, x: x(), least: 0, series,
      rest: `${format.money(costly.reduce((found, each) => found + total(each.cost, places), 0))} in all`,
      read: (at) => `${where(at)}: ${series.map((each) => `${each.name} ${format.money(each.values[at])}`).join(", ")}`,
    });
    const per = costly.map((each) => ({ name: each.name, mark: mark(each.number), values: range().map((at) => share(1000 * each.cost[at], rowsAt(each, at))) }));
    const rows = costly.reduce((found, each) => found + sum(places, (at) => rowsAt(each, at)), 0);
    lineChart(host, {
      title: "Cost of a thousand samples", legend: true, format: format.money, x: x(), least: 0, series: per,
      rest: `${format.money(share(1000 * costly.reduce((found, each) => found + total(each.cost, places), 0), rows))} for a thousand samples`,
      read: (at) => `${where(at)}: ${per.map((each) => `${each.name} ${format.money(each.values[at])}`).join(", ")}`,
    });
  }
  for (const each of functions) {
    const kinds = [["prompt", each.prompt_tokens, "var(--c0)"], ["completion", each.completion_tokens, "var(--c1)"]];
    const series = kinds.map(([name, values, colour]) => ({ name: `${name} tokens`, mark: colour, values: range().map((at) => share(values[at], rowsAt(each, at))) }));
    lineChart(host, {
      title: `${each.name}: tokens of a sample`, heading: mark(each.number), format: format.number, x: x(), least: 0, series,
      rest: kinds.map(([name, values]) => `${grouped(total(values, places))} ${name} tokens`).join(", "),
      read: (at) => `${where(at)}: ${series.map((one) => `${format.number(one.values[at])} ${one.name}`).join(", ")}`,
    });
  }
}

function drawJudges() {
  byId("judges").hidden = !data.judges.length;
  byId("judge-charts").replaceChildren();
  const table = byId("members");
  table.replaceChildren();
  const pairs = [];
  for (const each of data.judges.filter((one) => state.on.has(one.function))) {
    const name = data.functions[each.function].name;
    const values = range().map((at) => share(each.agreed[at], each.of[at]));
    lineChart(byId("judge-charts"), {
      title: `${name}: ${each.kind}`, heading: mark(each.function), format: format.share, x: x(), least: 0, most: 1,
      series: [{ name: "agreement", mark: mark(each.function), values }],
      rest: `agreement ${format.share(share(total(each.agreed), total(each.of)))}${each.spread ? `, apart by ${format.number(share(total(each.spread), total(each.of)))} on average` : ""}`,
      read: (at) => `${where(at)}: ${format.share(values[at])}`,
    });
    for (const pair of each.pairs || []) pairs.push([name, pair]);
  }
  table.parentElement.hidden = !pairs.length;
  if (!pairs.length) return;
  const body = head(table, ["Panel", "Members", "#Samples", "#Same score", "#Apart by", "#Correlation"]);
  for (const [name, pair] of pairs.slice(0, 120)) {
    body.append(el("tr", {}, el("th", { scope: "row" }, el("bdi", {}, name)), el("td", {}, el("bdi", {}, pair.members[0]), " and ", el("bdi", {}, pair.members[1])), cell(grouped(pair.samples)), cell(format.share(pair.equal_share)), cell(format.number(pair.distance)), cell(pair.correlation === null ? "–" : pair.correlation.toFixed(2))));
  }
}

function drawSamples() {
  byId("samples").hidden = !data.samples.length;
  const host = byId("sample-list");
  host.replaceChildren();
  let group = null;
  for (const row of data.samples.filter(isChosen)) {
    if (row.function !== group) host.append(el("h3", {}, el("bdi", {}, data.functions[row.function].name)));
    group = row.function;
    const title = `${row.why}: ${row.status === "ok" ? format.number(row.reward) : row.status}`;
    const list = el("dl");
    for (const [name, text] of Object.entries(row.texts)) list.append(el("dt", {}, el("bdi", {}, name)), el("dd", {}, el("pre", { dir: "auto" }, text)));
    host.append(el("details", { class: "sample" }, el("summary", {}, el("bdi", {}, title), el("span", { class: "muted small" }, ` – ${place(row)}`)), list));
  }
}

function filters() {
  byId("filters").hidden = false;
  let asked = false;
  const later = () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      drawAll();
    });
  };
  data.functions.forEach((each, number) => {
    const box = el("input", { type: "checkbox", value: String(number), mark: mark(number) });
    box.checked = state.on.has(number);
    box.addEventListener("change", () => {
      state.on[box.checked ? "add" : "delete"](number);
      later();
    });
    byId("functions").append(el("label", { title: each.name }, box, el("bdi", {}, each.name)));
  });
  for (const name of ["from", "to"]) {
    const input = byId(name);
    input.max = String(LAST);
    input.value = String(state[name]);
    input.addEventListener("input", () => {
      state[name] = Number(input.value);
      // The other end is pushed along.
      if (state.from > state.to) state[name === "from" ? "to" : "from"] = state[name];
      say();
      later();
    });
  }
  const say = () => {
    for (const name of ["from", "to"]) {
      byId(name).value = String(state[name]);
      byId(name).setAttribute("aria-valuetext", `${data.kind} ${grouped((name === "from" ? data.first : data.last)[state[name]])}`);
    }
  };
  byId("reset").addEventListener("click", () => {
    [state.from, state.to] = [0, LAST];
    state.on = new Set(data.functions.map((_, number) => number));
    for (const box of byId("functions").querySelectorAll("input")) box.checked = true;
    say();
    later();
  });
  say();
  let width = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth !== width) later();
    width = innerWidth;
  });
}

filters();
drawAll();
for (const link of document.querySelectorAll("#sections a")) link.parentElement.hidden = byId(link.hash.slice(1)).hidden;
