// What the page knows: the newest snapshot, and as much of the past as it shows.

export const KINDS = ["elementwise", "matmul", "reduction", "shape", "creation", "indexing",
  "graph", "upload", "read", "sync"];
export const STREAM_SECONDS = 10;
export const COLUMNS = 200;
const COLUMN_SECONDS = STREAM_SECONDS / COLUMNS;
const KEPT_POINTS = 240;
const KEPT_LATEST = 14;
const KEPT_LINES = 200;
const ROW_BYTES = 28;
const PLACE = new Map(KINDS.map((kind, place) => [kind, place]));

// How many events of each kind came in each twentieth of a second of the last ten: a ring, so that
// an event costs one addition when it comes and nothing when it is drawn.
export class EventCounts {
  counts = new Uint16Array(KINDS.length * COLUMNS);
  seen = new Uint8Array(KINDS.length);
  newest = 0;

  // Moves on to a moment, in seconds since 1970.
  advance(moment) {
    const column = Math.floor(moment / COLUMN_SECONDS);
    if (column - this.newest >= COLUMNS) this.counts.fill(0);
    else {
      for (let empty = this.newest + 1; empty <= column; empty += 1) {
        for (let place = 0; place < KINDS.length; place += 1) this.counts[place * COLUMNS + (empty % COLUMNS)] = 0;
      }
    }
    this.newest = Math.max(this.newest, column);
  }

  add(place, moment) {
    const column = Math.floor(moment / COLUMN_SECONDS);
    if (column > this.newest) this.advance(moment);
    else if (column <= this.newest - COLUMNS) return;
    this.counts[place * COLUMNS + (column % COLUMNS)] += 1;
    this.seen[place] = 1;
  }
}

export class Store {
  now = null;
  points = [];
  lanes = new EventCounts();
  latest = [];
  lines = [];
  linesSeen = 0;
  dropped = 0;

  apply(snapshot) {
    this.now = snapshot;
    this.points.push(...snapshot.traffic);
    if (this.points.length > KEPT_POINTS) this.points.splice(0, this.points.length - KEPT_POINTS);
    this.lanes.advance(snapshot.moment);
    for (const [, block] of snapshot.events) this.#take(block);
    this.dropped = snapshot.dropped;
    for (const line of snapshot.log) { this.lines.push(line); this.linesSeen += 1; }
    if (this.lines.length > KEPT_LINES) this.lines.splice(0, this.lines.length - KEPT_LINES);
  }

  // Rows as gpuwire/telemetry/event_block.py packs them.
  #take({ names, rows }) {
    const text = atob(rows);
    const bytes = new Uint8Array(text.length);
    for (let place = 0; place < text.length; place += 1) bytes[place] = text.charCodeAt(place);
    const view = new DataView(bytes.buffer);
    const places = names.map((name) => PLACE.get(name.kind));
    const name = (row) => view.getUint16(row + 24, true);
    for (let row = 0; row < bytes.length; row += ROW_BYTES) {
      const place = places[name(row)];
      if (place !== undefined) this.lanes.add(place, view.getFloat64(row, true));
    }
    const first = Math.max(0, bytes.length - KEPT_LATEST * ROW_BYTES);
    for (let row = first; row < bytes.length; row += ROW_BYTES) this.latest.push(names[name(row)]);
    if (this.latest.length > KEPT_LATEST) this.latest.splice(0, this.latest.length - KEPT_LATEST);
  }

  // A lost link begins anew, with everything the server still has.
  reset() {
    this.points = [];
    this.lanes = new EventCounts();
    this.latest = [];
    this.lines = [];
  }
}
