// How bars and moments look: colours of the scheme, and the small signs for what went wrong.

const NAMES = ["ground", "surface", "text", "muted", "rule", "grid", "focus", "ok", "ok-edge", "ok-text", "abstained", "skipped", "running", "running-text", "cancelled", "timeout", "error", "crashed", "on-failed", "frame", "frame-edge", "hatch", "limit", "group", "window", "load", "waiting", "c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7"];
const ink = {};
let hatching = null;
let colourBy = "status";

function readColours() {
  const style = getComputedStyle(document.documentElement);
  for (const name of NAMES) ink[name] = style.getPropertyValue(`--${name}`).trim();
  const tile = document.createElement("canvas");
  tile.width = tile.height = 6;
  const pen = tile.getContext("2d");
  pen.strokeStyle = ink.hatch;
  pen.lineWidth = 1;
  pen.beginPath();
  for (const at of [-6, 0, 6]) {
    pen.moveTo(at - 1, 7);
    pen.lineTo(at + 7, -1);
  }
  pen.stroke();
  hatching = pen.createPattern(tile, "repeat");
}

// A canvas of a size in CSS pixels, sharp on every screen.
function sized(canvas, width, height) {
  const scale = devicePixelRatio || 1;
  const [wide, high] = [Math.round(width * scale), Math.round(height * scale)];
  if (canvas.width !== wide || canvas.height !== high) [canvas.width, canvas.height] = [wide, high];
  [canvas.style.width, canvas.style.height] = [`${width}px`, `${height}px`];
  const pen = canvas.getContext("2d");
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, width, height);
  return pen;
}

const fills = { ok: ["ok", "ok-text"], abstained: ["abstained", "text"], skipped: ["skipped", "text"], running: ["running", "running-text"], cancelled: ["cancelled", "on-failed"], timeout: ["timeout", "on-failed"], error: ["error", "on-failed"], crashed: ["crashed", "on-failed"] };

// Ground and text of a status.
const colours = (status) => (fills[status] || ["frame", "text"]).map((name) => ink[name]);

function rounded(pen, x, y, width, height, radius) {
  pen.beginPath();
  pen.roundRect(x, y, width, height, Math.max(0, Math.min(radius, width / 2, height / 2)));
}

function stroke(pen, colour, width, ...points) {
  pen.strokeStyle = colour;
  pen.lineWidth = width;
  pen.beginPath();
  for (const line of points) line.forEach(([x, y], at) => (at ? pen.lineTo(x, y) : pen.moveTo(x, y)));
  pen.stroke();
}

// Signs, each about a middle: they tell what happened without colour.
const signs = {
  timeout(pen, x, y, r, colour) {
    pen.strokeStyle = colour;
    pen.lineWidth = 1.3;
    pen.beginPath();
    pen.arc(x, y, r, 0, 7);
    pen.stroke();
    stroke(pen, colour, 1.3, [[x, y - r * 0.65], [x, y], [x + r * 0.55, y + r * 0.2]]);
  },
  error(pen, x, y, r, colour) {
    const d = r * 0.72;
    stroke(pen, colour, 1.8, [[x - d, y - d], [x + d, y + d]], [[x - d, y + d], [x + d, y - d]]);
  },
  crashed(pen, x, y, r, colour) {
    stroke(pen, colour, 1.8, [[x + r * 0.35, y - r], [x - r * 0.45, y + r * 0.1], [x + r * 0.45, y + r * 0.1], [x - r * 0.35, y + r]]);
  },
  cancelled(pen, x, y, r, colour) {
    stroke(pen, colour, 1.8, [[x - r * 0.8, y], [x + r * 0.8, y]]);
  },
  retry(pen, x, y, r, colour) {
    pen.strokeStyle = pen.fillStyle = colour;
    pen.lineWidth = 1.4;
    pen.beginPath();
    pen.arc(x, y, r * 0.8, -0.4, 4.6);
    pen.stroke();
    const [tipX, tipY] = [x + r * 0.8 * Math.cos(-0.4), y + r * 0.8 * Math.sin(-0.4)];
    pen.beginPath();
    pen.moveTo(tipX - r * 0.62, tipY - r * 0.05);
    pen.lineTo(tipX + r * 0.45, tipY + r * 0.2);
    pen.lineTo(tipX + r * 0.1, tipY - r * 0.75);
    pen.fill();
  },
};

// The sign of a moment.
function momentMark(pen, name, x, y) {
  const harmless = HARMLESS.has(name);
  if (harmless) {
    pen.fillStyle = name === "calls returned to the queue" ? ink.muted : ink.running;
    pen.beginPath();
    pen.moveTo(x - 4, y + 5);
    pen.lineTo(x + 4, y + 5);
    pen.lineTo(x, y - 2);
    pen.fill();
    return;
  }
  pen.fillStyle = name === "worker died" ? ink.crashed : name === "worker killed" || name === "thread abandoned" ? ink.error : ink.limit;
  pen.strokeStyle = ink.ground;
  pen.lineWidth = 2;
  pen.beginPath();
  if (name.startsWith("worker") || name.startsWith("thread")) pen.arc(x, y, 6.5, 0, 7);
  else {
    pen.moveTo(x, y - 7);
    pen.lineTo(x + 7, y);
    pen.lineTo(x, y + 7);
    pen.lineTo(x - 7, y);
    pen.closePath();
  }
  pen.stroke();
  pen.fill();
  if (name === "worker died") signs.crashed(pen, x, y, 4, ink["on-failed"]);
  else if (name.startsWith("worker") || name.startsWith("thread")) signs.error(pen, x, y, 4, ink["on-failed"]);
  else stroke(pen, ink["on-failed"], 1.8, [[x, y - 3.5], [x, y + 1]], [[x, y + 2.8], [x, y + 4]]);
}

const widths = new Map();
function wide(pen, words) {
  if (!widths.has(words)) {
    if (widths.size > 20000) widths.clear();
    widths.set(words, pen.measureText(words).width);
  }
  return widths.get(words);
}

// As much of a text as fits; nothing if that is next to nothing.
function fits(pen, words, room) {
  if (wide(pen, words) <= room) return words;
  let length = Math.min(words.length, Math.floor((room / wide(pen, words)) * words.length));
  while (length > 2 && wide(pen, `${words.slice(0, length)}…`) > room) length--;
  return length > 2 ? `${words.slice(0, length)}…` : "";
}

// One bar. `one` is what `bar` of rows.js makes; x is already within the view. `later` takes the
// label where something is drawn upon the bar.
function drawBar(pen, one, x, y, width, height, later = null) {
  const inset = one.depth > 0 ? Math.min(3, height / 6) : 0;
  [y, height] = [y + inset, height - 2 * inset];
  if (!one.status && one.name === "queue") {
    pen.fillStyle = hatching;
    pen.fillRect(x, y, width, height);
    return;
  }
  const failed = FAILED.has(STATUS.indexOf(one.status));
  let [ground, words] = colours(one.status);
  const byFunction = colourBy === "function" && !failed && functionMark.has(one.name);
  if (byFunction) [ground, words] = [ink[functionMark.get(one.name).slice(2)], ink.text];
  const merged = one.count > 1;
  // Of several, the paler the less of the time one of them ran.
  pen.globalAlpha = (byFunction ? 0.5 : 1) * (merged ? 0.35 + 0.65 * Math.min(1, one.busy / (one.to - one.from || 1)) : 1);
  pen.fillStyle = merged && one.status && !byFunction ? ink.ok : ground;
  rounded(pen, x, y, width, height, merged ? 0 : 3);
  pen.fill();
  pen.globalAlpha = 1;
  if (one.bad) {
    const part = Math.max(3, (height * one.bad) / one.count);
    pen.fillStyle = ground;
    pen.fillRect(x, y + height - part, width, part);
    words = ink["ok-text"];
  }
  if (width > 4 && !merged) {
    pen.lineWidth = 1;
    pen.strokeStyle = failed ? ground : one.status === "ok" ? ink["ok-edge"] : ink["frame-edge"];
    rounded(pen, x + 0.5, y + 0.5, width - 1, height - 1, 3);
    pen.stroke();
  }
  let left = x + 4;
  if (height > 11 && width > 17) {
    for (const sign of [failed && !merged ? one.status : null, one.attempt > 1 ? "retry" : null]) {
      if (!sign || left + 12 > x + width) continue;
      signs[sign](pen, left + 5, y + height / 2, 4.5, words);
      left += 13;
    }
  } else if (one.attempt > 1 && height > 11) {
    stroke(pen, ink.text, 2, [[x + 1, y + 1], [x + Math.min(5, width), y + 1]]);
  }
  if (height > 11 && x + width - left > 22) {
    const known = one.sample >= 0 && one.status ? `${one.name} #${one.sample}` : one.name;
    const called = wide(pen, known) <= x + width - left - 6 ? known : one.name;
    const times = `×${grouped(one.count)}`;
    const both = one.name === "several" || wide(pen, `${one.name} ${times}`) > x + width - left - 6 ? times : `${one.name} ${times}`;
    const what = merged ? both : one.calls > 0 && !one.status ? `${one.name} ×${grouped(one.calls)}` : called;
    if (later) later.push(() => label(pen, what, left - 4, y + 2, x + width - left + 4, height - 4, words, ground));
    else label(pen, what, left - 4, y, x + width - left + 4, height, words);
  }
}

function label(pen, words, x, y, width, height, colour, ground) {
  const shown = fits(pen, words, width - 8);
  if (!shown) return;
  if (ground) {
    pen.fillStyle = ground;
    pen.fillRect(x + 2, y, wide(pen, shown) + 5, height);
  }
  pen.fillStyle = colour;
  pen.fillText(shown, x + 4, y + height / 2 + 0.5);
}
