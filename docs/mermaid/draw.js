// Draws the pictures of a page, and again when the reader changes between light and dark.

const pictures = [...document.querySelectorAll("pre.mermaid")];
const sources = pictures.map((picture) => picture.textContent);
const system = window.matchMedia("(prefers-color-scheme: dark)");

function isDark() {
  const chosen = document.body.dataset.theme;
  return chosen === "dark" || (chosen !== "light" && system.matches);
}

let drawing = Promise.resolve();

// One drawing at a time: Mermaid writes into the page as it goes.
function draw() {
  drawing = drawing.then(async () => {
    mermaid.initialize({ startOnLoad: false, theme: isDark() ? "dark" : "neutral" });
    pictures.forEach((picture, number) => {
      picture.removeAttribute("data-processed");
      picture.textContent = sources[number];
    });
    await mermaid.run({ nodes: pictures });
  });
}

system.addEventListener("change", draw);
new MutationObserver(draw).observe(document.body, { attributeFilter: ["data-theme"] });
draw();
