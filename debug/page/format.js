// Text for people.

const units = ['KiB', 'MiB', 'GiB', 'TiB', 'PiB'];

// bytes prints a size with three or four digits, in the unit of the largest one beside it.
export function bytes(n, largest = n) {
  if (Math.abs(largest) < 1024) return `${n} B`;
  let i = -1;
  do { n /= 1024; largest /= 1024; i++; } while (Math.abs(largest) >= 1024 && i < units.length - 1);
  return `${Number(n.toPrecision(Math.abs(n) >= 1000 ? 4 : 3))} ${units[i]}`;
}

export const count = n => n.toLocaleString('en-US');
export const percent = x => `${Number((100 * x).toPrecision(3))} %`;
export const plural = (n, what) => `${count(n)} ${what}${n === 1 ? '' : 's'}`;

// clock prints a time of day.
export const clock = (ms, digits = 0) => new Date(ms).toLocaleTimeString('en-GB') + (digits ? (ms % 1000 / 1000).toFixed(digits).slice(1) : '');

// duration prints a time span shortly.
export function duration(ms) {
  const s = ms / 1000;
  if (s < 1) return `${Math.round(ms)} ms`;
  if (s < 120) return `${Number(s.toPrecision(3))} s`;
  if (s < 7200) return `${Math.round(s / 60)} min`;
  return `${Math.round(s / 3600)} h`;
}

// shortFunction is a function without the path of its package.
export const shortFunction = name => name.slice(name.lastIndexOf('/') + 1) || '?';
export const shortFile = f => `${f.filename.slice(f.filename.lastIndexOf('/') + 1)}:${f.line}`;

// el makes an element. Attributes whose value is false are left out.
export function el(name, attrs = {}, ...children) {
  const e = document.createElement(name);
  for (const [key, value] of Object.entries(attrs)) {
    if (key.startsWith('on')) e.addEventListener(key.slice(2), value);
    else if (value !== false && value != null) e.setAttribute(key, value === true ? '' : value);
  }
  e.append(...children.filter(c => c != null));
  return e;
}

// css returns a colour of the style sheet.
export const css = name => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

// swatch is a small square of a colour: a canvas, as styles in attributes are forbidden.
export function swatch(colour) {
  const c = el('canvas', { width: 4, height: 4, 'aria-hidden': 'true' });
  const g = c.getContext('2d');
  g.fillStyle = colour;
  g.fillRect(0, 0, 4, 4);
  return c;
}

// bar is a bar of a part of a whole, as SVG.
export function bar(part) {
  const ns = 'http://www.w3.org/2000/svg';
  const svg = document.createElementNS(ns, 'svg');
  svg.setAttribute('viewBox', '0 0 100 10');
  svg.setAttribute('preserveAspectRatio', 'none');
  svg.setAttribute('aria-hidden', 'true');
  for (const [cls, width] of [['rest', 100], ['part', Math.max(part * 100, part > 0 ? 1 : 0)]]) {
    const r = document.createElementNS(ns, 'rect');
    r.setAttribute('class', cls);
    r.setAttribute('width', width);
    r.setAttribute('height', 10);
    svg.append(r);
  }
  return svg;
}

// table fills a table: columns are [name, class] or ['', class, name for screen readers], rows are lists of nodes or texts.
export function table(t, caption, columns, rows) {
  const cell = (tag, value, i) => el(tag, { class: columns[i][1] || null, scope: tag === 'th' ? 'col' : null }, value);
  t.replaceChildren(
    ...(caption ? [el('caption', {}, caption)] : []),
    el('thead', {}, el('tr', {}, ...columns.map((c, i) => cell('th', c[2] ? el('span', { class: 'sr' }, c[2]) : c[0], i)))),
    el('tbody', {}, ...rows.map(row => el('tr', {}, ...row.map((v, i) => cell('td', v, i))))),
  );
}

// stackList is a list of all frames of a stack.
export function stackList(frames) {
  return el('ol', { class: 'stack' }, ...frames.map(f => el('li', {}, shortFunction(f.name), el('small', {}, `${f.filename}:${f.line}`))));
}

// stackLine is a stack in a line: the innermost function and its callers.
export const stackLine = frames => frames.slice(0, 3).map(f => `${shortFunction(f.name)} ${shortFile(f)}`).join(' ← ') + (frames.length > 3 ? ' ← …' : '');
