// The dashboard: one stream of snapshots from the server, shown as it comes.

import { Theme } from "/static/charts.js";
import { Graphs } from "/static/graphs.js";
import { Devices, Kernels, Latest, Log, Operations, Sessions, Stream, Tiles, Traffic } from "/static/panels.js";
import { Painter } from "/static/painter.js";
import { Store } from "/static/store.js";
import { write } from "/static/tables.js";

const SILENT_MS = 3000;

const store = new Store();
const theme = new Theme(() => painter.request());
const painter = new Painter([
  new Tiles(store), new Operations(store, theme), new Stream(store, theme), new Latest(store),
  new Devices(store), new Traffic(store, theme), new Sessions(store), new Graphs(store),
  new Kernels(store), new Log(store),
]);
const link = document.getElementById("link");
const pause = document.getElementById("pause");
let source = null;
let heard = 0;

function say(state, text) {
  if (link.dataset.state !== state) link.dataset.state = state;
  write(link, text);
}

function take(event) {
  const began = performance.now();
  heard = began;
  const snapshot = JSON.parse(event.data);
  store.apply(snapshot);
  write(document.getElementById("server"), snapshot.whole ? snapshot.server : `${snapshot.server}, your sessions`);
  say("live", "live");
  painter.note(performance.now() - began);
  painter.ready = true;
  painter.request();
}

function open() {
  source = new EventSource("/events");
  store.reset();
  source.addEventListener("message", take);
  source.addEventListener("open", () => { store.reset(); });
  source.addEventListener("error", () => {
    say("lost", source.readyState === EventSource.CLOSED ? "refused" : "no server");
    if (source.readyState === EventSource.CLOSED) setTimeout(() => { if (source) { open(); } }, SILENT_MS);
  });
}

function close() {
  source?.close();
  source = null;
}

pause.addEventListener("click", () => {
  const paused = pause.getAttribute("aria-pressed") !== "true";
  pause.setAttribute("aria-pressed", String(paused));
  if (paused) { close(); say("waiting", "paused"); } else { say("waiting", "connecting…"); open(); }
});

// Nobody looks at a hidden page, so nobody watches the server through it.
document.addEventListener("visibilitychange", () => {
  if (pause.getAttribute("aria-pressed") === "true") return;
  if (document.hidden) close(); else if (!source) open();
});

setInterval(() => {
  if (source && heard && performance.now() - heard > SILENT_MS && link.dataset.state === "live") say("lost", "silent");
}, 1000);

// What painting has cost, in milliseconds a frame, for whoever measures it.
globalThis.gpuwire = { frames: painter.frames };

open();
