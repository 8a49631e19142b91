// A report in its frame: the frame is as high as the report says that it is, so that the page alone scrolls.
"use strict";
const LEAST_PIXELS = 200;
const MOST_PIXELS = 100000; // a report may be a stranger's

const frame = document.querySelector("iframe.report");
if (frame) {
  window.addEventListener("message", (event) => {
    const height = event.source === frame.contentWindow && event.data ? Number(event.data.reportHeight) : NaN;
    if (height >= LEAST_PIXELS && height <= MOST_PIXELS) frame.style.height = `${Math.ceil(height)}px`;
  });
}
