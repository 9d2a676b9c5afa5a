// What the page knows: the newest snapshot, and as much of the past as it shows.

export const KINDS = ["elementwise", "matmul", "reduction", "shape", "creation", "indexing",
  "graph", "upload", "read", "sync"];
export const STREAM_SECONDS = 10;
const KEPT_POINTS = 240;
const KEPT_EVENTS = 12000;
const KEPT_LINES = 200;

export class Store {
  now = null;
  points = [];
  events = [];
  lines = [];
  linesSeen = 0;
  dropped = 0;

  apply(snapshot) {
    this.now = snapshot;
    this.points.push(...snapshot.traffic);
    if (this.points.length > KEPT_POINTS) this.points.splice(0, this.points.length - KEPT_POINTS);
    this.events.push(...snapshot.events);
    const oldest = snapshot.moment - STREAM_SECONDS;
    let gone = 0;
    while (gone < this.events.length && this.events[gone][1].moment < oldest) gone += 1;
    gone = Math.max(gone, this.events.length - KEPT_EVENTS);
    if (gone) this.events.splice(0, gone);
    this.dropped = snapshot.dropped;
    for (const line of snapshot.log) { this.lines.push(line); this.linesSeen += 1; }
    if (this.lines.length > KEPT_LINES) this.lines.splice(0, this.lines.length - KEPT_LINES);
  }

  // A lost link begins anew, with everything the server still has.
  reset() {
    this.points = [];
    this.events = [];
    this.lines = [];
  }
}
