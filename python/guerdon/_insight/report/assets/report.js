// Boxes that hide and show what belongs to single functions.

const byId = (id) => document.getElementById(id);

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
