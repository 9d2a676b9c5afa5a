// How numbers are written.

export function bytes(count) {
  if (!count) return "0 B";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (Math.abs(count) >= 1024 && unit < units.length - 1) { count /= 1024; unit += 1; }
  return `${digits(count)} ${units[unit]}`;
}

export function number(value) {
  return value >= 1e5 ? `${digits(value / 1e3)} k` : value >= 100 || Number.isInteger(value)
    ? Math.round(value).toLocaleString("en") : digits(value);
}

export function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value >= 1) return `${digits(value)} s`;
  if (value >= 1e-3) return `${digits(value * 1e3)} ms`;
  return `${digits(value * 1e6)} µs`;
}

export function age(value) {
  if (value < 60) return `${Math.floor(value)} s`;
  if (value < 3600) return `${Math.floor(value / 60)} min`;
  return `${Math.floor(value / 3600)} h ${Math.floor((value % 3600) / 60)} min`;
}

export const plural = (count, one, many = `${one}s`) => `${number(count)} ${count === 1 ? one : many}`;

function digits(value) {
  return value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2);
}
