// Rows by key, written only where something has changed.

export class Rows {
  #body;
  #columns;
  #rows = new Map();

  // columns: [{label, text(row), number?, state?}]
  constructor(body, columns, head = null) {
    this.#body = body;
    this.#columns = columns;
    if (head) {
      for (const column of columns) {
        const cell = document.createElement("th");
        cell.scope = "col";
        cell.textContent = column.label;
        if (column.number) cell.className = "number";
        head.append(cell);
      }
    }
  }

  show(rows) {
    const seen = new Set();
    let place = this.#body.firstElementChild;
    for (const [key, row] of rows) {
      seen.add(key);
      let known = this.#rows.get(key);
      if (!known) { known = this.#make(); this.#rows.set(key, known); }
      if (known.element === place) place = place.nextElementSibling;
      else this.#body.insertBefore(known.element, place);
      this.#write(known, row);
    }
    for (const [key, known] of this.#rows) {
      if (!seen.has(key)) { known.element.remove(); this.#rows.delete(key); }
    }
  }

  #make() {
    const element = document.createElement("tr");
    const cells = this.#columns.map((column) => {
      const cell = document.createElement("td");
      cell.dataset.label = column.label;
      cell.className = [column.number ? "number" : "", column.state ? "state" : ""].join(" ").trim();
      element.append(cell);
      return cell;
    });
    return { element, cells, texts: cells.map(() => null), dot: null };
  }

  #write(known, row) {
    this.#columns.forEach((column, index) => {
      const text = column.text(row);
      if (known.texts[index] === text) return;
      known.texts[index] = text;
      known.cells[index].textContent = text;
      if (column.title) known.cells[index].title = text;
      if (column.state) known.cells[index].dataset.state = text;
      if (column.dot) known.cells[index].style.setProperty("--dot", `var(--kind-${column.dot(row)})`);
    });
  }
}

// Sets a text only if it is another.
export function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
