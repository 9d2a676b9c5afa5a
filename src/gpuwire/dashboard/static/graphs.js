// Op-graphs: a list to choose from, and a drawing of the one that was chosen.

import { bytes, number, plural } from "/static/format.js";
import { BOX, layOut } from "/static/layout.js";
import { write } from "/static/tables.js";

const SVG = "http://www.w3.org/2000/svg";
const BUILD_MS = 3;
const AGAIN_MS = 5000;

export class Graphs {
  #items = new Map();
  #chosen = null;
  #boxes = [];
  #at = -1;
  #revision = 0;
  #drawnAt = 0;

  constructor(store) {
    this.store = store;
    this.list = document.getElementById("graph-list");
    this.scroll = document.getElementById("graph-scroll");
    this.detail = document.getElementById("graph-detail");
    this.cache = document.getElementById("cache");
    this.scroll.addEventListener("keydown", (event) => this.#key(event));
  }

  paint() {
    const { graphs, sessions, devices } = this.store.now;
    const names = new Map(sessions.map((session) => [`${session.device}/${session.number}`, session.name]));
    const seen = new Set();
    for (const graph of graphs) {
      const key = `${graph.device}/${graph.session}/${graph.graph}`;
      seen.add(key);
      let item = this.#items.get(key);
      if (!item) { item = this.#make(key); this.#items.set(key, item); }
      const session = names.get(`${graph.device}/${graph.session}`) ?? "?";
      write(item.title, `Graph ${graph.graph}: ${plural(graph.nodes, "operation")}`);
      const classes = graph.classes.map((count) => `${count.count} ${count.kind}`).join(", ");
      write(item.facts, `session ${session} · ${plural(graph.runs, "run")} · ${classes || "given up"}`);
      write(item.error, graph.last_error ? `last error: ${graph.last_error}` : "");
      if (key === this.#chosen && graph.last_error && graph.last_error !== item.told
          && performance.now() - this.#drawnAt > AGAIN_MS) this.#choose(key);
      item.told = graph.last_error;
    }
    for (const [key, item] of this.#items) {
      if (seen.has(key)) continue;
      item.element.remove();
      this.#items.delete(key);
    }
    const sum = (field) => devices.reduce((total, device) => total + device.cache[field], 0);
    const runs = sum("runs");
    const registrations = sum("registrations");
    const misses = sum("misses");
    const saved = Math.max(0, sum("baseline_bytes") - sum("actual_bytes"));
    write(this.cache, runs
      ? `${number(Math.max(0, runs - registrations - misses))} hits, ${number(registrations)} registered, `
        + `${plural(misses, "miss", "misses")}, ${number(sum("evictions"))} given up; `
        + `${bytes(saved)} saved on the link${fusedShare(devices)}`
      : "No op-graph has run yet: they appear when a program repeats itself.");
    if (!this.#chosen && graphs.length) {
      const { device, session, graph } = graphs.reduce((a, b) => (b.nodes > a.nodes ? b : a));
      this.#choose(`${device}/${session}/${graph}`);
    }
  }

  #make(key) {
    const element = document.createElement("li");
    const button = document.createElement("button");
    button.type = "button";
    button.setAttribute("aria-pressed", "false");
    button.addEventListener("click", () => this.#choose(key));
    const title = document.createElement("b");
    const facts = document.createElement("span");
    const error = document.createElement("span");
    error.className = "bad";
    button.append(title, facts, error);
    element.append(button);
    this.list.append(element);
    return { element, button, title, facts, error, told: "" };
  }

  async #choose(key) {
    this.#items.get(this.#chosen)?.button.setAttribute("aria-pressed", "false");
    this.#chosen = key;
    this.#items.get(key)?.button.setAttribute("aria-pressed", "true");
    this.#drawnAt = performance.now();
    this.#revision += 1;
    const revision = this.#revision;
    let drawing = null;
    try {
      const answer = await fetch(`/graph/${key}`);
      if (answer.ok) drawing = await answer.json();
    } catch { /* The link is lost; the page says so, and tries again. */ }
    if (revision !== this.#revision) return;
    this.#at = -1;
    if (!drawing) {
      this.scroll.replaceChildren();
      write(this.detail, "This graph is gone: its session has ended, or the server gave it up.");
      return;
    }
    this.#draw(drawing, revision);
  }

  #draw(drawing, revision) {
    const { boxes, byKey, width, height } = layOut(drawing);
    const svg = make("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
    const edges = make("g");
    const nodes = make("g");
    svg.append(edges, nodes);
    this.scroll.replaceChildren(svg);
    this.#boxes = boxes;
    let cut = drawing.total - drawing.nodes.length;
    write(this.detail, `${plural(drawing.total, "operation")}${cut ? `, the first ${drawing.nodes.length} drawn` : ""}. `
      + "Point at a node, or use the arrow keys.");
    let next = 0;
    const build = () => {
      if (revision !== this.#revision) return;
      const began = performance.now();
      while (next < boxes.length && performance.now() - began < BUILD_MS) {
        const box = boxes[next];
        for (const name of box.operands) edges.append(edge(byKey.get(name), box));
        nodes.append(this.#node(box, next));
        next += 1;
      }
      if (next < boxes.length) requestAnimationFrame(build);
    };
    build();
  }

  #node(box, place) {
    const group = make("g", { transform: `translate(${box.x} ${box.y})` });
    if (box.node?.error) group.classList.add("failed");
    const rect = make("rect", { width: BOX.width, height: BOX.height, rx: box.input ? 18 : 6,
      class: `box${box.outputs ? " output" : ""}${box.input ? " input" : ""}` });
    rect.style.stroke = box.input ? "var(--line)" : `var(--kind-${box.node.kind})`;
    const name = make("text", { x: BOX.width / 2, y: 15, "text-anchor": "middle", "font-weight": "600" });
    name.textContent = box.input ? `input ${box.key.slice(1)}` : box.node.name;
    const type = make("text", { x: BOX.width / 2, y: 29, "text-anchor": "middle" });
    type.textContent = short(box.input ? box.type : box.node.type);
    group.append(rect, name, type);
    group.addEventListener("pointerenter", () => this.#point(place));
    box.group = group;
    return group;
  }

  #point(place) {
    this.#boxes[this.#at]?.group?.classList.remove("chosen");
    this.#at = place;
    const box = this.#boxes[place];
    box.group?.classList.add("chosen");
    write(this.detail, box.input
      ? `Input ${box.key.slice(1)}: ${box.type}`
      : `${box.node.name} (${box.node.kind}) of ${box.node.operands.map(spoken).join(", ")} → `
        + `${box.node.type}, ${bytes(box.node.nbytes)}${box.outputs ? ", kept as a result" : ""}`
        + `${box.node.error ? `. Last error: ${box.node.error}` : ""}`);
  }

  #key(event) {
    const { key } = event;
    if (!this.#boxes.length || !key.startsWith("Arrow")) return;
    event.preventDefault();
    const box = this.#boxes[this.#at];
    let next = 0;
    if (box && (key === "ArrowDown" || key === "ArrowUp")) {
      const row = box.row + (key === "ArrowDown" ? 1 : -1);
      const there = this.#boxes.filter((other) => other.row === row);
      if (!there.length) return;
      const near = there.reduce((a, b) => (Math.abs(b.x - box.x) < Math.abs(a.x - box.x) ? b : a));
      next = this.#boxes.indexOf(near);
    } else if (box) {
      const step = key === "ArrowRight" || key === "ArrowDown" ? 1 : -1;
      next = (this.#at + step + this.#boxes.length) % this.#boxes.length;
    }
    this.#point(next);
    const found = this.#boxes[next];
    this.scroll.scrollTo({ left: found.x - this.scroll.clientWidth / 2, top: found.y - this.scroll.clientHeight / 2 });
  }
}

function fusedShare(devices) {
  const total = (field) => devices.reduce((sum, device) => sum + device[field].reduce((all, { count }) => all + count, 0), 0);
  const fused = total("fused");
  const run = fused + total("unfused");
  return run ? `; ${Math.round((fused / run) * 100)} % of ${number(run)} operations ran in a kernel with others` : "";
}

function edge(from, to) {
  const x0 = from.x + BOX.width / 2;
  const y0 = from.y + BOX.height;
  const x1 = to.x + BOX.width / 2;
  const y1 = to.y;
  const bend = Math.max(16, (y1 - y0) / 2);
  return make("path", { class: "edge", d: `M${x0} ${y0}C${x0} ${y0 + bend} ${x1} ${y1 - bend} ${x1} ${y1}` });
}

function spoken(operand) {
  const what = { n: "node", i: "input", s: "scalar" }[operand[0]];
  return `${what} ${operand.slice(1)}`;
}

function short(text) {
  return text.length > 20 ? `${text.slice(0, 19)}…` : text;
}

function make(name, attributes = {}) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}
