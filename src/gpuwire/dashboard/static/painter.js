// Paints panels, a few milliseconds a frame. A panel that does not fit into this frame is painted
// in the next, so a burst of events never makes a long frame.

const FRAME_MS = 3;
const KEPT = 600;

export class Painter {
  #panels;
  #dirty = new Set();
  #planned = false;
  frames = [];
  ready = false;

  constructor(panels) { this.#panels = panels; }

  // Everything has changed.
  request() {
    if (!this.ready) return;
    for (const panel of this.#panels) this.#dirty.add(panel);
    this.#plan();
  }

  note(milliseconds) {
    this.frames.push(milliseconds);
    if (this.frames.length > KEPT) this.frames.splice(0, KEPT / 2);
  }

  #plan() {
    if (this.#planned || !this.#dirty.size) return;
    this.#planned = true;
    requestAnimationFrame(() => this.#paint());
  }

  #paint() {
    this.#planned = false;
    const began = performance.now();
    for (const panel of this.#panels) {
      if (!this.#dirty.delete(panel)) continue;
      panel.paint();
      if (performance.now() - began > FRAME_MS) break;
    }
    this.note(performance.now() - began);
    this.#plan();
  }
}
