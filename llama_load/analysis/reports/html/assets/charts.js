"use strict";
// Draws the charts of the page from its JSON, in the colours of the reader's light or dark mode. Nothing is loaded from elsewhere.
(() => {
  const LIGHT_TO_DARK = "PALETTE";
  const DARK_TO_LIGHT = Object.fromEntries(Object.entries(LIGHT_TO_DARK).map(([light, dark]) => [dark, light]));
  const dark = window.matchMedia("screen and (prefers-color-scheme: dark)"); // paper is light

  const swapped = (value, colours) => {
    if (typeof value === "string") return colours[value];
    if (value !== null && typeof value === "object" && typeof value.value === "string" && value.value in colours)
      return { ...value, value: colours[value.value] };
    return undefined;
  };

  const recolour = (document_, colours) => {
    for (const model of document_._all_models.values()) {
      const changes = {};
      for (const property of model) {
        if (!/color/.test(property.attr)) continue;
        const other = swapped(property.get_value(), colours);
        if (other !== undefined) changes[property.attr] = other;
      }
      if (Object.keys(changes).length > 0) model.setv(changes);
    }
  };

  const draw = async () => {
    const data = document.getElementById("charts");
    if (data === null) return;
    const { docs, roots } = JSON.parse(data.textContent);
    const places = Object.fromEntries(roots.map((id, number) => [id, document.querySelector(`[data-chart="${number}"]`)]));
    await Bokeh.embed.embed_items(docs, [{ docid: "charts", roots: places, root_ids: roots }]);
    const drawn = Bokeh.documents.at(-1);
    if (dark.matches) recolour(drawn, LIGHT_TO_DARK);
    dark.addEventListener("change", () => recolour(drawn, dark.matches ? LIGHT_TO_DARK : DARK_TO_LIGHT));
    // A finger that drags over a chart scrolls the page.
    if (window.matchMedia("(pointer: coarse)").matches)
      for (const model of drawn._all_models.values()) if (model.type === "BoxZoomTool") model.active = false;
    document.documentElement.dataset.charts = "drawn";
  };

  draw().catch((error) => {
    console.error(error);
    document.documentElement.dataset.charts = "failed";
  });

  // In its frame on the page of results, which is made as high as the report.
  if (window.parent !== window) {
    const tell = () => window.parent.postMessage({ reportHeight: document.body.getBoundingClientRect().height }, "*");
    new ResizeObserver(tell).observe(document.body);
  }
})();
