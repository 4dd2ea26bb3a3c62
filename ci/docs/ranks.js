// The slider of a catalogue page shows the drawing for one number of ranks. Pages may come without being loaded anew.
document.addEventListener("input", (event) => {
  const box = event.target.closest(".ranks");
  if (!box) return;
  const images = box.querySelectorAll("img");
  images.forEach((image, i) => { image.hidden = i !== Number(event.target.value); });
  box.querySelector("output").textContent = images[event.target.value].dataset.ranks;
});
