// Charts on canvases: drawn whole, at the rate at which facts come.

import { COLUMNS, KINDS } from "/static/store.js";

const POINTS = 240;

// Colours come from the style sheet, so that light and dark are decided in one place.
export class Theme {
  constructor(changed) {
    this.read();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      this.read();
      changed();
    });
  }

  read() {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(`--${name}`).trim();
    this.ink = colour("ink");
    this.soft = colour("soft");
    this.line = colour("line");
    this.accent = colour("accent");
    this.kinds = Object.fromEntries(KINDS.map((kind) => [kind, colour(`kind-${kind}`)]));
  }
}

class Canvas {
  constructor(element) {
    this.element = element;
    this.context = element.getContext("2d");
    this.width = this.height = 0;
    new ResizeObserver(([entry]) => {
      const scale = Math.min(devicePixelRatio || 1, 2);
      const { width, height } = entry.contentRect;
      if (this.width === width && this.height === height) return;
      this.width = width;
      this.height = height;
      element.width = Math.round(width * scale);
      element.height = Math.round(height * scale);
      this.context.setTransform(scale, 0, 0, scale, 0, 0);
      // Its new size has emptied it, and the next facts may be a while away.
      this.again?.();
    }).observe(element);
  }

  clear() {
    this.context.clearRect(0, 0, this.width, this.height);
    return this.width > 0;
  }
}

// One line over the last minute, with the highest value as its scale.
export class Line {
  constructor(element, theme, value, format, what) {
    Object.assign(this, { canvas: new Canvas(element), theme, value, format, what });
    this.element = element;
  }

  paint(points) {
    const { canvas, theme } = this;
    canvas.again = () => this.paint(points);
    if (!canvas.clear()) return;
    const { context, width, height } = canvas;
    const values = points.map(this.value);
    const most = Math.max(...values, 0) || 1;
    const step = width / (POINTS - 1);
    const x = (index) => width - (values.length - 1 - index) * step;
    const y = (value) => height - 3 - (value / most) * (height - 18);
    rule(context, theme, width, height - 3);
    if (values.length > 1) {
      context.beginPath();
      values.forEach((value, index) => context.lineTo(x(index), y(value)));
      context.strokeStyle = theme.accent;
      context.lineWidth = 1.5;
      context.stroke();
      context.lineTo(width, height - 3);
      context.lineTo(x(0), height - 3);
      context.globalAlpha = 0.15;
      context.fillStyle = theme.accent;
      context.fill();
      context.globalAlpha = 1;
    }
    label(context, theme, `most ${this.format(Math.max(...values, 0))}`, 0, 10);
  }

  describe(points) {
    const last = points.length ? this.value(points[points.length - 1]) : 0;
    const most = Math.max(...points.map(this.value), 0);
    this.element.setAttribute("aria-label",
      `${this.what}: now ${this.format(last)}, at most ${this.format(most)} in the last minute`);
    return this.format(last);
  }
}

// Operations per second, one class on top of the other.
export class Stack {
  constructor(element, theme, format) {
    Object.assign(this, { canvas: new Canvas(element), theme, format, element });
  }

  paint(points) {
    const { canvas, theme } = this;
    canvas.again = () => this.paint(points);
    if (!canvas.clear()) return;
    const { context, width, height } = canvas;
    const rates = points.map((point, index) => {
      const span = index ? point.moment - points[index - 1].moment : 0.25;
      return Object.fromEntries(point.ops.map((count) => [count.kind, count.count / Math.max(span, 0.05)]));
    });
    const kinds = KINDS.filter((kind) => rates.some((rate) => rate[kind]));
    const sums = rates.map((rate) => kinds.reduce((sum, kind) => sum + (rate[kind] ?? 0), 0));
    const most = Math.max(...sums, 0) || 1;
    const step = width / (POINTS - 1);
    const x = (index) => width - (rates.length - 1 - index) * step;
    const y = (value) => height - 3 - (value / most) * (height - 20);
    const floor = rates.map(() => 0);
    rule(context, theme, width, height - 3);
    for (const kind of kinds) {
      context.beginPath();
      rates.forEach((rate, index) => context.lineTo(x(index), y(floor[index] + (rate[kind] ?? 0))));
      for (let index = rates.length - 1; index >= 0; index -= 1) context.lineTo(x(index), y(floor[index]));
      context.fillStyle = theme.kinds[kind];
      context.globalAlpha = 0.85;
      context.fill();
      rates.forEach((rate, index) => { floor[index] += rate[kind] ?? 0; });
    }
    context.globalAlpha = 1;
    label(context, theme, `most ${this.format(Math.max(...sums, 0))} per second`, 0, 11);
    this.kinds = kinds;
  }
}

// Each event a mark in its class's row; marks of one moment are one, and darker. Classes that have
// not come yet have no row.
export class Lanes {
  constructor(element, theme) {
    Object.assign(this, { canvas: new Canvas(element), theme, element });
  }

  paint(lanes) {
    const { canvas, theme } = this;
    canvas.again = () => this.paint(lanes);
    if (!canvas.clear()) return;
    const { context, width, height } = canvas;
    const shown = KINDS.map((kind, place) => place).filter((place) => lanes.seen[place]);
    const left = 82;
    const lane = Math.min(26, height / Math.max(shown.length, 1));
    const step = (width - left) / COLUMNS;
    shown.forEach((place, row) => {
      const y = row * lane;
      rule(context, theme, width, y + lane - 0.5);
      label(context, theme, KINDS[place], 0, y + lane / 2 + 4);
      context.fillStyle = theme.kinds[KINDS[place]];
      for (let column = 0; column < COLUMNS; column += 1) {
        const count = lanes.counts[place * COLUMNS + ((lanes.newest + 1 + column) % COLUMNS)];
        if (!count) continue;
        context.globalAlpha = Math.min(1, 0.45 + 0.12 * Math.log2(count));
        context.fillRect(left + column * step, y + 2, Math.max(step - 0.7, 1), lane - 4);
      }
      context.globalAlpha = 1;
    });
  }
}

function rule(context, theme, width, y) {
  context.fillStyle = theme.line;
  context.fillRect(0, y, width, 1);
}

function label(context, theme, text, x, y) {
  context.fillStyle = theme.soft;
  context.font = "11px system-ui, sans-serif";
  context.fillText(text, x, y);
}
