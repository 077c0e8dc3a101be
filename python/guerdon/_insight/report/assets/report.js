// The switch between light and dark, and boxes that hide and show what belongs to single functions.

const byId = (id) => document.getElementById(id);

function theme() {
  const names = { system: "", light: "light", dark: "dark" };
  const button = byId("theme");
  let now = "system";
  const apply = () => {
    if (names[now]) document.documentElement.dataset.theme = names[now];
    else delete document.documentElement.dataset.theme;
    button.textContent = `Theme: ${now}`;
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

const show = (box) => {
  for (const each of document.querySelectorAll(`[data-function="${box.value}"]`)) each.hidden = !box.checked;
};
const boxes = [...document.querySelectorAll("#functions input")];
for (const box of boxes) {
  box.addEventListener("change", () => show(box));
  if (!box.checked) show(box);
}
byId("reset")?.addEventListener("click", () => {
  for (const box of boxes) {
    box.checked = true;
    show(box);
  }
});
if (byId("filters")) byId("filters").hidden = boxes.length < 2;
