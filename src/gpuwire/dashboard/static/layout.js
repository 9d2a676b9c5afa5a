// Where the nodes of an op-graph go: in layers, each node below all that it reads, and within its
// layer near the middle of them.

export const BOX = { width: 128, height: 36, across: 18, down: 34 };

export function layOut(drawing) {
  const boxes = new Map();
  drawing.inputs.forEach((type, index) => {
    boxes.set(`i${index}`, { key: `i${index}`, layer: 0, input: true, type, operands: [] });
  });
  drawing.nodes.forEach((node, index) => {
    const operands = node.operands.filter((name) => boxes.has(name));
    const layer = 1 + Math.max(0, ...operands.map((name) => boxes.get(name).layer));
    const outputs = drawing.outputs.includes(index);
    boxes.set(`n${index}`, { key: `n${index}`, layer, node, index, operands, outputs });
  });
  // An input stands just above the first that reads it.
  for (const box of boxes.values()) {
    for (const name of box.operands) {
      const read = boxes.get(name);
      if (read.input) read.first = Math.min(read.first ?? box.layer - 1, box.layer - 1);
    }
  }
  const layers = [];
  for (const box of boxes.values()) {
    if (box.input) box.layer = box.first ?? 0;
    (layers[box.layer] ??= []).push(box);
  }
  const filled = layers.filter(Boolean);
  const widest = Math.max(...filled.map((layer) => layer.length), 1);
  const width = widest * (BOX.width + BOX.across) + BOX.across;
  filled.forEach((layer, row) => {
    for (const box of layer) {
      const above = box.operands.map((name) => boxes.get(name)).filter((read) => read.x !== undefined);
      box.wish = above.length ? above.reduce((sum, read) => sum + read.x, 0) / above.length : width / 2;
    }
    layer.sort((one, other) => one.wish - other.wish);
    const span = layer.length * (BOX.width + BOX.across) - BOX.across;
    const mean = layer.reduce((sum, box) => sum + box.wish, 0) / layer.length + BOX.width / 2;
    const start = Math.max(BOX.across, Math.min(mean - span / 2, width - span - BOX.across));
    layer.forEach((box, place) => {
      box.row = row;
      box.x = start + place * (BOX.width + BOX.across);
      box.y = BOX.across + row * (BOX.height + BOX.down);
    });
  });
  return { boxes: [...boxes.values()], byKey: boxes, width, height: filled.length * (BOX.height + BOX.down) };
}
