// What every page has: its data, elements made of names and texts (text is only ever set as text),
// numbers as people read them, and the switch between light and dark.

const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";

function el(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "mark") made.style.setProperty("--mark", value);
    else if (key === "class") made.className = value;
    else made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

function svg(name, attributes = {}, text = null) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "fill" || key === "stroke") made.style[key] = value;
    else made.setAttribute(key, value);
  }
  if (text !== null) made.textContent = text;
  return made;
}

const known = (value) => value !== null && value !== undefined && Number.isFinite(value);
const grouped = (value) => Math.round(value).toLocaleString("en-US");

const format = {
  count: grouped,
  number(value) {
    if (!known(value)) return "–";
    const size = Math.abs(value);
    if (size >= 10000) return grouped(value);
    if (size !== 0 && size < 0.001) return value.toExponential(1);
    return String(Number(value.toPrecision(3)));
  },
  share(value) {
    if (!known(value)) return "–";
    const percent = 100 * value;
    if (percent > 0 && percent < 0.1) return "<0.1 %";
    return `${percent < 10 ? Number(percent.toFixed(1)) : Math.round(percent)} %`;
  },
  seconds(value) {
    if (!known(value)) return "–";
    if (value < 120) value = Number(value.toPrecision(2));
    if (value < 1e-3) return `${Number((value * 1e6).toPrecision(2))} µs`;
    if (value < 1) return `${Number((value * 1e3).toPrecision(2))} ms`;
    if (value < 120) return `${Number(value.toPrecision(2))} s`;
    return value < 7200 ? `${Math.round(value / 60)} min` : `${Number((value / 3600).toFixed(1))} h`;
  },
  money(value) {
    if (!known(value)) return "–";
    return value.toLocaleString("en-US", { minimumFractionDigits: 2, maximumFractionDigits: value && Math.abs(value) < 0.1 ? 5 : 2 });
  },
};

// Round numbers between the ends, about as many as asked for.
function ticks(least, most, wanted) {
  const span = most - least;
  if (!(span > 0)) return [least];
  const raw = span / Math.max(1, wanted);
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((each) => each * power).find((each) => each >= raw);
  const found = [];
  for (let at = Math.ceil(least / step - 1e-9); at * step <= most + step * 1e-9; at++) found.push(Number((at * step).toPrecision(12)));
  return found;
}

function theme() {
  const names = { system: "", light: "light", dark: "dark" };
  const button = byId("theme");
  let now = "system";
  const apply = () => {
    if (names[now]) document.documentElement.dataset.theme = names[now];
    else delete document.documentElement.dataset.theme;
    button.textContent = `Theme: ${now}`;
    dispatchEvent(new Event("themechange")); // what is drawn on a canvas has its own colours
  };
  try {
    now = localStorage.getItem("guerdon-theme") in names ? localStorage.getItem("guerdon-theme") : "system";
  } catch {
    now = "system"; // storage is not to be had in some browsers' files
  }
  button.hidden = false;
  button.addEventListener("click", () => {
    now = { system: "light", light: "dark", dark: "system" }[now];
    try {
      localStorage.setItem("guerdon-theme", now);
    } catch {
      // the choice then lasts as long as the page
    }
    apply();
  });
  apply();
}

theme();
