// Paints panels, a few each frame: what they have changed is laid out and painted by the browser in
// the same frame, which takes it three times as long as we did. The rest has its turn in the next, so
// that no frame is a long one.

const FRAME_MS = 1;
const PANELS = 2;
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
    let painted = 0;
    for (const panel of this.#panels) {
      if (!this.#dirty.delete(panel)) continue;
      panel.paint();
      painted += 1;
      if (painted === PANELS || performance.now() - began > FRAME_MS) break;
    }
    this.note(performance.now() - began);
    this.#plan();
  }
}
