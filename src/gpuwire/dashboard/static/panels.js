// The panels but for the op-graphs: each writes what has changed.

import { Lanes, Line, Stack } from "/static/charts.js";
import { age, bytes, number, plural, seconds } from "/static/format.js";
import { Rows, write } from "/static/tables.js";

const DESCRIBE_MS = 2000;
const find = (id) => document.getElementById(id);
const rate = (value) => `${bytes(value)}/s`;

export class Tiles {
  #values = new Map();

  constructor(store) { this.store = store; }

  paint() {
    const { now, points } = this.store;
    const point = points.at(-1);
    const ops = point ? point.ops.reduce((sum, count) => sum + count.count, 0) : 0;
    const span = points.length > 1 ? point.moment - points.at(-2).moment : 0.25;
    const devices = now.devices;
    this.#tile("operations per second", number(ops / Math.max(span, 0.05)));
    this.#tile("tasks per second", number(point?.tasks ?? 0));
    this.#tile("frames per second", number(point?.frames ?? 0));
    this.#tile("from clients", rate(point?.bytes_in ?? 0));
    this.#tile("to clients", rate(point?.bytes_out ?? 0));
    this.#tile("open sessions", number(now.sessions.length));
    this.#tile("device memory in use", bytes(devices.reduce((sum, device) => sum + device.in_use_bytes, 0)));
    this.#tile("failed operations", number(devices.reduce((sum, device) => sum + device.failures, 0)));
    this.#tile("refused connections", number(now.totals.refusals));
    this.#tile("viewers", number(now.viewers));
    const { upload_hits: found, upload_misses: missed, upload_bytes_not_sent: spared } = now.totals;
    if (found || missed) {
      this.#tile("announced uploads found", `${number(found)} of ${number(found + missed)}`);
      this.#tile("not sent again", bytes(spared));
    }
  }

  #tile(name, text) {
    let value = this.#values.get(name);
    if (!value) {
      const group = document.createElement("div");
      const term = document.createElement("dt");
      value = document.createElement("dd");
      term.textContent = name;
      group.append(term, value);
      find("tiles").append(group);
      this.#values.set(name, value);
    }
    write(value, text);
  }
}

export class Operations {
  #legend = "";

  constructor(store, theme) {
    this.store = store;
    this.stack = new Stack(find("rates"), theme, number);
  }

  paint() {
    this.stack.paint(this.store.points);
    const kinds = this.stack.kinds ?? [];
    if (kinds.join() === this.#legend) return;
    this.#legend = kinds.join();
    find("legend").replaceChildren(...kinds.map((kind) => {
      const entry = document.createElement("span");
      const mark = document.createElement("i");
      mark.style.background = `var(--kind-${kind})`;
      entry.append(mark, kind);
      return entry;
    }));
  }
}

export class Stream {
  constructor(store, theme) {
    this.store = store;
    this.lanes = new Lanes(find("lanes"), theme);
  }

  paint() {
    const { lanes, dropped } = this.store;
    this.lanes.paint(lanes);
    write(find("dropped"), dropped ? `${number(dropped)} more in the last quarter second, counted and not drawn one by one.` : "");
  }
}

export class Latest {
  constructor(store) {
    this.store = store;
    this.rows = new Rows(find("latest").tBodies[0], [
      { label: "operation", text: (event) => event.name, dot: (event) => event.kind, title: true },
      { label: "result", text: (event) => event.shape || "–", title: true },
      { label: "bytes", text: (event) => (event.nbytes ? bytes(event.nbytes) : "–"), number: true },
    ]);
  }

  paint() {
    const latest = this.store.latest.toReversed();
    this.rows.show(latest.map((event, index) => [index, event]));
  }
}

export class Devices {
  #devices = new Map();

  constructor(store) { this.store = store; }

  paint() {
    for (const device of this.store.now.devices) {
      const known = this.#devices.get(device.index) ?? this.#make(device);
      write(known.state, device.state);
      known.state.dataset.state = device.state;
      write(known.facts, `${device.backend}, ${device.kind}${device.restarts ? `, ${plural(device.restarts, "restart")}` : ""} · `
        + `${bytes(device.in_use_bytes)} in use of ${bytes(device.reserved_bytes)} reserved`);
      const shown = device.pools.filter((pool) => pool.high_water_reserved_bytes > 0);
      for (const pool of shown) this.#pool(known, pool);
      known.empty.hidden = shown.length > 0;
    }
  }

  #make(device) {
    const element = document.createElement("div");
    element.className = "device";
    const title = document.createElement("h3");
    const state = document.createElement("b");
    state.className = "state";
    const facts = document.createElement("span");
    title.append(`${device.index}: ${device.name}`, state, facts);
    const empty = document.createElement("p");
    empty.className = "empty";
    empty.textContent = "No memory has been reserved yet.";
    element.append(title, empty);
    find("devices").append(element);
    const known = { element, state, facts, empty, pools: new Map() };
    this.#devices.set(device.index, known);
    return known;
  }

  #pool(known, pool) {
    let row = known.pools.get(pool.name);
    if (!row) {
      const element = document.createElement("div");
      element.className = "pool";
      const name = document.createElement("span");
      name.textContent = pool.name;
      const bar = document.createElement("div");
      bar.className = "bar";
      bar.setAttribute("role", "img");
      const parts = ["reserved", "used", "high"].map((part) => {
        const piece = document.createElement("i");
        piece.className = part;
        bar.append(piece);
        return piece;
      });
      const words = document.createElement("span");
      words.className = "words";
      element.append(name, bar, words);
      known.element.append(element);
      row = { bar, parts, words, told: "" };
      known.pools.set(pool.name, row);
    }
    const text = `${bytes(pool.in_use_bytes)} of ${bytes(pool.reserved_bytes)}, high ${bytes(pool.high_water_bytes)}`;
    if (text === row.told) return;
    row.told = text;
    write(row.words, text);
    row.bar.setAttribute("aria-label", `${pool.name}: ${bytes(pool.in_use_bytes)} used of ${bytes(pool.reserved_bytes)} `
      + `reserved, high water ${bytes(pool.high_water_bytes)}`);
    const whole = pool.high_water_reserved_bytes || 1;
    const share = (value) => `${Math.min(100, (value / whole) * 100)}%`;
    row.parts[0].style.width = share(pool.reserved_bytes);
    row.parts[1].style.width = share(pool.in_use_bytes);
    row.parts[2].style.left = `min(calc(100% - 2px), ${share(pool.high_water_bytes)})`;
  }
}

export class Traffic {
  #described = 0;

  constructor(store, theme) {
    this.store = store;
    this.charts = [
      ["frames", (point) => point.frames, number, "Frames per second"],
      ["tasks", (point) => point.tasks, number, "Tasks per second"],
      ["in", (point) => point.bytes_in, rate, "Bytes from clients"],
      ["out", (point) => point.bytes_out, rate, "Bytes to clients"],
      ["saved", (point) => point.saved_bytes, rate, "Bytes saved by op-graphs"],
    ].map(([id, value, format, what]) => [new Line(find(`c-${id}`), theme, value, format, what), find(`v-${id}`)]);
    this.next = 0;
  }

  paint() {
    const describes = performance.now() - this.#described > DESCRIBE_MS;
    if (describes) this.#described = performance.now();
    for (const [chart, output] of this.charts) {
      chart.paint(this.store.points);
      const point = this.store.points.at(-1);
      write(output, chart.format(point ? chart.value(point) : 0));
      if (describes) chart.describe(this.store.points);
    }
  }
}

export class Sessions {
  constructor(store) {
    this.store = store;
    const table = find("sessions");
    this.rows = new Rows(table.tBodies[0], [
      { label: "session", text: (row) => row.name },
      { label: "state", text: (row) => row.state, state: true },
      { label: "client", text: (row) => row.client },
      { label: "address", text: (row) => row.address },
      { label: "token", text: (row) => row.token },
      { label: "device", text: (row) => String(row.device), number: true },
      { label: "open for", text: (row) => age(row.age_seconds), number: true },
      { label: "round trip", text: (row) => seconds(row.rtt_seconds), number: true },
      { label: "frames in / out", text: (row) => `${number(row.frames_in)} / ${number(row.frames_out)}`, number: true },
      { label: "tasks", text: (row) => number(row.tasks), number: true },
      { label: "bytes in / out", text: (row) => `${bytes(row.bytes_in)} / ${bytes(row.bytes_out)}`, number: true },
      { label: "lost packets", text: (row) => number(row.packets_lost), number: true },
      { label: "resumed", text: (row) => number(row.resumptions), number: true },
      { label: "arrays", text: (row) => `${number(row.tensors)}, ${bytes(row.memory_bytes)}`, number: true },
    ], table.tHead.rows[0]);
  }

  paint() {
    const { sessions } = this.store.now;
    this.rows.show(sessions.map((session) => [session.name, session]));
    find("sessions").hidden = !sessions.length;
    find("no-sessions").hidden = sessions.length > 0;
  }
}

export class Kernels {
  constructor(store) {
    this.store = store;
    this.rows = new Rows(find("kernels").tBodies[0], [
      { label: "kernel", text: (kernel) => kernel.name, title: true },
      { label: "launches", text: (kernel) => number(kernel.launches), number: true },
      { label: "mean", text: (kernel) => (kernel.samples ? seconds(kernel.mean_seconds) : "–"), number: true },
      { label: "in all", text: (kernel) => (kernel.samples ? seconds(kernel.mean_seconds * kernel.launches) : "–"), number: true },
    ]);
  }

  paint() {
    const { devices, whole } = this.store.now;
    const kernels = devices.flatMap((device) => device.kernels.map((kernel) => [`${device.index} ${kernel.name}`, kernel]));
    this.rows.show(kernels.slice(0, 12));
    const timing = devices.find((device) => device.timing)?.timing;
    write(find("kernels-note"), !whole
      ? "Kernels are shown with the server's own token only."
      : `Since the device host began, by the ${timing === "system" ? "system's" : "device's"} clock. `
        + "A few launches are timed while somebody watches; in all is launches times their mean.");
  }
}

export class Log {
  #shown = 0;

  constructor(store) {
    this.store = store;
    this.element = find("log");
  }

  paint() {
    const { lines, linesSeen } = this.store;
    let fresh = Math.min(linesSeen - this.#shown, lines.length);
    if (fresh <= 0) return;
    this.#shown = linesSeen;
    const { element } = this;
    const atEnd = element.scrollHeight - element.scrollTop - element.clientHeight < 40;
    for (const line of lines.slice(-fresh)) {
      const row = document.createElement("div");
      row.textContent = line;
      element.append(row);
    }
    while (element.childElementCount > 200) element.firstElementChild.remove();
    if (atEnd) element.scrollTop = element.scrollHeight;
  }
}
