// The map: segments flow over rows of equal numbers of bytes, in groups by stream and
// kind. Only rows in view are drawn, pixel by pixel into one image, so that the number
// of blocks hardly matters.
import { bytes, css, plural } from './format.js';
import { isHeld, stateOf } from './data.js';

const rowHeight = 18, barHeight = 14, headHeight = 26, pad = 8, gapParts = 40;
const palette = ['#4e79a7', '#f28e2b', '#59a14f', '#d65557', '#b07aa1', '#57a6a0', '#d9b435', '#f08a94', '#9c755f', '#7d9c3f'];
const mostHeight = () => Math.max(220, Math.min(innerHeight * 0.62, 620));
const groupOf = seg => seg.stream * 4 + (seg.stitched ? 2 : seg.small ? 1 : 0);
const minScale = 4096, maxRows = 400000;

export class MemoryMap {
  constructor(root, { onPoint, onSelect, onScale }) {
    Object.assign(this, { root, onPoint, onSelect, onScale });
    this.tall = root.querySelector('.tall');
    this.canvas = root.querySelector('canvas');
    this.g = this.canvas.getContext('2d', { alpha: false });
    this.by = 'state';
    this.marked = null; // {by, key}: the blocks that are shown, others are dimmed
    this.selected = this.pointed = -1;
    this.scale = 0; // bytes a row; 0: what fits
    this.items = [];
    root.addEventListener('scroll', () => this.draw());
    root.addEventListener('pointermove', e => this.point(this.blockAt(e)));
    root.addEventListener('pointerleave', () => this.point(-1));
    root.addEventListener('click', e => this.select(this.blockAt(e), false));
    root.addEventListener('keydown', e => this.key(e));
    root.addEventListener('wheel', e => {
      if (!e.ctrlKey) return;
      e.preventDefault();
      this.zoom(e.deltaY < 0 ? 0.5 : 2);
    }, { passive: false });
    new ResizeObserver(() => this.resize()).observe(root);
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.recolour());
  }

  // show takes a snapshot. What is selected stays, if it is at the same address.
  show(s) {
    const old = this.s, was = this.selected;
    this.s = s;
    this.selected = this.pointed = -1;
    if (old && was >= 0) {
      const seg = old.segments[old.seg[was]], same = s.segments.find(x => x.address === seg.address);
      if (same) this.selected = this.find(same, old.start[was]);
    }
    this.layout();
    this.recolour();
    this.onSelect(this.selected, false);
  }

  // find returns the block of a segment at an offset.
  find(seg, offset) {
    let low = seg.first, high = seg.first + seg.count - 1;
    while (low < high) {
      const mid = (low + high + 1) >> 1;
      if (this.s.start[mid] <= offset) low = mid; else high = mid - 1;
    }
    return low;
  }

  // layout puts segments into rows. Addresses without memory take little room, so
  // blocks have places of their own within a segment: at, and its end long.
  layout() {
    const s = this.s;
    if (!s || !this.width) return;
    const fit = this.fit();
    this.perRow = this.scale || fit;
    this.at = new Float64Array(s.n);
    const groups = new Map();
    for (const seg of s.segments) {
      let at = 0;
      for (let b = seg.first; b < seg.first + seg.count; b++) {
        this.at[b] = at;
        at += stateOf(s, b) === 'gap' ? Math.min(s.size[b], this.perRow / gapParts) : s.size[b];
      }
      seg.long = at;
      const key = groupOf(seg);
      if (!groups.has(key)) groups.set(key, []);
      groups.get(key).push(seg);
    }
    this.items = []; // rows and heads: {y, head} or {y, pieces}
    this.order = []; // segments as they are shown
    this.y = 4;
    for (const [, segs] of [...groups].sort((a, b) => a[0] - b[0])) {
      this.items.push({ y: this.y, head: this.headOf(segs) });
      this.y += headHeight;
      this.flow(segs);
      this.y += 6;
    }
    this.tall.style.height = `${this.y}px`;
    this.root.style.height = `${Math.min(this.y + 2, mostHeight())}px`;
    this.resize();
    this.onScale(this.perRow, !this.scale);
  }

  headOf(segs) {
    const size = segs.reduce((n, x) => n + x.reserved, 0), held = segs.reduce((n, x) => n + x.held, 0);
    const kind = segs[0].stitched ? 'stitched ranges' : `${segs[0].small ? 'small' : 'large'} ${segs[0].virtual ? 'ranges' : 'segments'}`;
    const figures = segs[0].stitched ? `${segs.length}` : `${segs.length}  ·  ${bytes(size)}, ${bytes(held)} in use`;
    return { title: `Stream ${segs[0].stream}, ${kind}`, figures };
  }

  // flow puts segments one after the other; one that is longer than the rest of the row
  // begins a new row.
  flow(segs) {
    const room = this.width - 2 * pad, gap = this.perRow * 3 / room;
    let row = null, used = 0;
    const begin = () => { this.items.push(row = { y: this.y, pieces: [] }); this.y += rowHeight; used = 0; };
    for (const seg of segs) {
      this.order.push(seg.index);
      seg.place = this.order.length - 1;
      if (!row || used + Math.min(seg.long, this.perRow) > this.perRow * 1.0001) begin();
      for (let from = 0; from < seg.long || from === 0;) {
        const long = Math.min(seg.long - from, this.perRow - used);
        if (from === 0) Object.assign(seg, { row: this.items.length - 1, begun: long });
        row.pieces.push({ seg, from, long, x: pad + used / this.perRow * room });
        used += long + gap;
        from += long;
        if (from < seg.long) begin();
        else break;
      }
      if (used > this.perRow) row = null;
    }
  }

  // fit returns the bytes a row with which all is in view, or nearly.
  fit() {
    const groups = new Set(this.s.segments.map(groupOf));
    const rows = Math.max(6, (mostHeight() - groups.size * (headHeight + 6)) / rowHeight - groups.size);
    let total = 0;
    for (let b = 0; b < this.s.n; b++) if (stateOf(this.s, b) !== 'gap') total += this.s.size[b];
    let scale = minScale;
    while (scale * rows < total) scale *= 2;
    return scale > minScale && scale * 0.75 * rows >= total ? scale * 0.75 : scale;
  }

  zoom(factor) {
    if (!this.s) return;
    const total = this.s.segments.reduce((n, x) => n + x.long, 0);
    const middle = this.selected >= 0 ? null : this.blockIn(this.width / 2, this.root.scrollTop + this.height / 2);
    const scale = Math.max(minScale, total / maxRows, this.perRow * factor);
    this.scale = factor && scale < this.fit() * 4 ? scale : factor ? this.perRow : 0;
    this.layout();
    this.reveal(middle ?? this.selected, true);
    this.draw();
  }

  resize() {
    const width = this.root.clientWidth, height = this.root.clientHeight;
    if (!width || width === this.width && height === this.height && this.ratio === devicePixelRatio) return;
    this.width = width;
    this.height = height;
    this.ratio = devicePixelRatio;
    const wide = this.laidOut !== width;
    this.laidOut = width;
    this.canvas.width = Math.round(width * this.ratio);
    this.canvas.height = Math.round(height * this.ratio);
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
    this.image = this.g.createImageData(this.canvas.width, this.canvas.height);
    this.pixels = new Uint32Array(this.image.data.buffer);
    this.cover = new Float32Array(this.canvas.width);
    if (wide) this.layout();
    this.draw();
  }

  // recolour gives each block its colour.
  recolour() {
    this.back = pixel(css('panel'));
    this.ink = css('ink');
    this.muted = css('muted');
    this.colours = {};
    for (const name of ['live', 'pending', 'cached', 'free', 'part', 'gap']) this.colours[name] = css(name);
    const s = this.s;
    if (!s) return;
    const states = s.states.map(name => pixel(this.colours[name] || '#888')), held = s.states.map(isHeld);
    const faint = s.states.map(name => mix(pixel(this.colours[name] || '#888'), this.back, 0.75));
    const colours = palette.map(pixel), quiet = pixel(this.colours.free);
    this.other = pixel(css('other'));
    this.rank = this.ranks();
    this.tint = new Uint32Array(s.n);
    for (let b = 0; b < s.n; b++) {
      const st = s.state[b];
      let c = states[st];
      if (this.by !== 'state' && held[st]) {
        const key = this.keyOf(b), rank = this.rank.get(key);
        c = rank === undefined ? this.other : colours[rank];
        if (s.states[st] === 'pending') c = mix(c, this.back, 0.45);
      } else if (this.by !== 'state' && s.states[st] === 'cached') c = quiet;
      if (this.marked && !(held[st] && s[this.marked.by][b] === this.marked.key)) c = faint[st];
      this.tint[b] = c;
    }
    this.draw();
  }

  keyOf(b) { return this.by === 'stream' ? this.s.segments[this.s.seg[b]].stream : this.s[this.by][b]; }

  // ranks gives colours to the ten streams, labels or stacks that hold most. Blocks
  // without a label or stack have none.
  ranks() {
    const s = this.s, sums = new Map(), ranks = new Map();
    if (this.by === 'state') return ranks;
    for (let b = 0; b < s.n; b++) {
      if (!isHeld(stateOf(s, b))) continue;
      const key = this.keyOf(b);
      if (this.by === 'stream' || key) sums.set(key, (sums.get(key) || 0) + s.size[b]);
    }
    [...sums].sort((a, b) => b[1] - a[1]).slice(0, palette.length).forEach(([key], i) => ranks.set(key, i));
    return ranks;
  }

  // legend lists colours and what they mean.
  legend() {
    if (!this.s) return [];
    if (this.by === 'state') return this.s.states.filter((_, i) => this.s.state.includes(i)).map(name => ({ colour: this.colours[name], key: name }));
    return [...this.rank].map(([key, i]) => ({ colour: palette[i], key }));
  }

  // first returns the number of the last item that begins at or above y.
  first(y) {
    let low = 0, high = this.items.length - 1;
    while (low < high) {
      const mid = (low + high + 1) >> 1;
      if (this.items[mid].y <= y) low = mid; else high = mid - 1;
    }
    return low;
  }

  draw() {
    if (!this.s || !this.image || !this.tint || this.waiting) return;
    this.waiting = requestAnimationFrame(() => { this.waiting = 0; this.paint(); });
  }

  paint() {
    const { g, items, ratio } = this, top = this.root.scrollTop, heads = [];
    this.pixels.fill(this.back);
    for (let i = this.first(top); i < items.length && items[i].y < top + this.height; i++) {
      const item = items[i];
      if (item.head) heads.push(item); else this.paintRow(item, top);
    }
    g.putImageData(this.image, 0, 0);
    g.setTransform(ratio, 0, 0, ratio, 0, 0);
    g.textBaseline = 'alphabetic';
    for (const { y, head } of heads) {
      g.font = '600 12px system-ui, sans-serif';
      g.fillStyle = this.ink;
      g.fillText(head.title, pad, y - top + 18);
      const x = pad + g.measureText(head.title).width + 12;
      g.font = '12px system-ui, sans-serif';
      g.fillStyle = this.muted;
      g.fillText(head.figures, x, y - top + 18);
    }
    if (!this.s.n) {
      g.font = '13px system-ui, sans-serif';
      g.fillStyle = this.muted;
      g.fillText('No memory is reserved.', pad + 4, 28);
    }
    this.outline(this.selected, top, 2);
    if (this.pointed !== this.selected) this.outline(this.pointed, top, 1.5);
    g.setTransform(1, 0, 0, 1, 0, 0);
  }

  paintRow(row, top) {
    const { s, at, ratio, pixels, cover, tint } = this, W = this.canvas.width, H = this.canvas.height;
    const y0 = Math.round((row.y - top) * ratio), y1 = Math.min(H, y0 + Math.round(barHeight * ratio));
    const y = Math.max(y0, 0);
    if (y1 <= y) return;
    const line = pixels.subarray(y * W, (y + 1) * W), perByte = (this.width - 2 * pad) * ratio / this.perRow;
    cover.fill(0);
    for (const p of row.pieces) {
      const x0 = p.x * ratio, x1 = x0 + Math.max(p.long * perByte, 1);
      const last = p.seg.first + p.seg.count;
      for (let b = this.findAt(p.seg, p.from); b < last; b++) {
        const a = x0 + (at[b] - p.from) * perByte;
        if (a >= x1) break;
        const next = b + 1 < last ? at[b + 1] : p.seg.long;
        const from = Math.max(a, x0), to = Math.min(x0 + (next - p.from) * perByte, x1), c = tint[b];
        this.fill(line, cover, from, to, c, a + 4 * ratio < to && b + 1 < last);
      }
    }
    for (let i = y + 1; i < y1; i++) pixels.copyWithin(i * W, y * W, (y + 1) * W);
  }

  // fill colours pixels from a to b. One that several blocks share has the colour of that
  // which covers most of it. Blocks of some width end with a gap.
  fill(line, cover, a, b, colour, gap) {
    const i = Math.floor(a), j = Math.floor(b);
    if (i === j) {
      if (b - a > cover[i]) { cover[i] = b - a; line[i] = colour; }
      return;
    }
    if (i + 1 - a > cover[i]) { cover[i] = i + 1 - a; line[i] = colour; }
    line.fill(colour, i + 1, j);
    if (b - j > cover[j]) { cover[j] = b - j; line[j] = colour; }
    if (gap) {
      const n = Math.max(1, Math.round(this.ratio * 0.75));
      line.fill(this.back, j - n, j);
    }
  }

  // findAt is find by place.
  findAt(seg, place) {
    let low = seg.first, high = seg.first + seg.count - 1;
    while (low < high) {
      const mid = (low + high + 1) >> 1;
      if (this.at[mid] <= place) low = mid; else high = mid - 1;
    }
    return low;
  }

  endOf(b) {
    const seg = this.s.segments[this.s.seg[b]];
    return b + 1 < seg.first + seg.count ? this.at[b + 1] : seg.long;
  }

  // rowsOf calls f for each row that a block is in.
  rowsOf(b, f) {
    const seg = this.s.segments[this.s.seg[b]], perByte = (this.width - 2 * pad) / this.perRow;
    const start = this.at[b], end = this.endOf(b);
    // All rows of a segment but its first are whole.
    for (let i = seg.row + Math.ceil(Math.max(0, start - seg.begun + 1) / this.perRow); i < this.items.length; i++) {
      const item = this.items[i], p = item.pieces?.find(p => p.seg === seg);
      if (!p || p.from >= end && p.from > start) break;
      if (p.from + p.long <= start) continue;
      f(item, p.x + Math.max(start - p.from, 0) * perByte, p.x + Math.min(end - p.from, p.long) * perByte);
    }
  }

  outline(b, top, width) {
    if (b < 0) return;
    const { g } = this;
    g.strokeStyle = this.ink;
    g.lineWidth = width;
    this.rowsOf(b, (row, x0, x1) => {
      if (row.y - top < -rowHeight || row.y - top > this.height) return;
      const w = Math.max(x1 - x0, 4);
      g.strokeRect((x0 + x1 - w) / 2 - 1, row.y - top - 1, w + 2, barHeight + 2);
    });
  }

  blockAt(e) {
    const box = this.root.getBoundingClientRect();
    return this.blockIn(e.clientX - box.left - this.root.clientLeft, e.clientY - box.top - this.root.clientTop + this.root.scrollTop);
  }

  // blockIn returns the block at a place of the page, or -1.
  blockIn(x, y) {
    if (!this.s || !this.items.length) return -1;
    const row = this.items[this.first(y)];
    if (!row.pieces || y < row.y || y > row.y + rowHeight) return -1;
    const perByte = (this.width - 2 * pad) / this.perRow;
    let best = -1, near = 3;
    for (const p of row.pieces) {
      const off = x < p.x ? p.x - x : Math.max(0, x - p.x - p.long * perByte);
      if (off < near && p.seg.count) {
        near = off;
        best = this.findAt(p.seg, p.from + Math.min(Math.max((x - p.x) / perByte, 0), p.long * 0.999999));
      }
    }
    return best;
  }

  point(b) {
    if (b === this.pointed) return;
    this.pointed = b;
    this.onPoint(b);
    this.draw();
  }

  select(b, byKey) {
    this.selected = b;
    if (byKey) this.reveal(b, false);
    this.onSelect(b, byKey);
    this.draw();
  }

  mark(marked) {
    this.marked = marked;
    this.recolour();
  }

  // reveal scrolls to a block.
  reveal(b, center) {
    if (b == null || b < 0) return;
    let y = -1;
    this.rowsOf(b, row => { if (y < 0) y = row.y; });
    if (y < 0) return;
    if (center) this.root.scrollTop = y - this.height / 2;
    else if (y < this.root.scrollTop + headHeight) this.root.scrollTop = y - headHeight - rowHeight;
    else if (y > this.root.scrollTop + this.height - 2 * rowHeight) this.root.scrollTop = y - this.height + 3 * rowHeight;
  }

  // beside returns the block after or before one, as they are shown.
  beside(b, step) {
    const seg = this.s.segments[this.s.seg[b]];
    if (b + step >= seg.first && b + step < seg.first + seg.count) return b + step;
    return this.inSegment(seg.place + step, step > 0 ? 'first' : 'last');
  }

  inSegment(place, which) {
    const seg = this.s.segments[this.order[place]];
    return !seg || !seg.count ? -1 : which === 'first' ? seg.first : seg.first + seg.count - 1;
  }

  // above returns the block a row above or below.
  above(b, step) {
    let x = 0, y = 0, seen = false;
    this.rowsOf(b, (row, x0, x1) => { if (!seen || step > 0) { x = (x0 + x1) / 2; y = row.y; seen = true; } });
    for (let i = this.first(y) + step; this.items[i]; i += step) {
      if (!this.items[i].pieces) continue;
      const pieces = this.items[i].pieces, p = pieces.findLast(p => p.x <= x) || pieces[0];
      const perByte = (this.width - 2 * pad) / this.perRow;
      return this.findAt(p.seg, p.from + Math.min(Math.max((x - p.x) / perByte, 0), p.long * 0.999999));
    }
    return -1;
  }

  key(e) {
    if (!this.s?.n || e.altKey || e.ctrlKey || e.metaKey) return;
    const b = this.selected, from = b >= 0 ? b : this.inSegment(0, 'first');
    const seg = this.s.segments[this.s.seg[from]];
    const moves = {
      ArrowRight: () => this.beside(from, 1), ArrowLeft: () => this.beside(from, -1),
      ArrowDown: () => this.above(from, 1), ArrowUp: () => this.above(from, -1),
      PageDown: () => this.inSegment(seg.place + 1, 'first'), PageUp: () => this.inSegment(seg.place - 1, 'first'),
      Home: () => this.inSegment(0, 'first'), End: () => this.inSegment(this.order.length - 1, 'last'),
    };
    if (moves[e.key]) {
      const to = b < 0 ? from : moves[e.key]();
      if (to >= 0) this.select(to, true);
    } else if (e.key === '+' || e.key === '=') this.zoom(0.5);
    else if (e.key === '-') this.zoom(2);
    else if (e.key === '0') this.zoom(0);
    else if (e.key === 'Escape') { this.mark(null); this.select(-1, false); }
    else if (e.key === 'Enter' && b >= 0) this.markLike(b);
    else return;
    e.preventDefault();
  }

  // markLike shows the blocks of the same stack or, without, the same label.
  markLike(b) {
    const by = this.s.stack[b] ? 'stack' : 'label', key = this.s[by][b];
    this.mark(this.marked?.by === by && this.marked.key === key || !key ? null : { by, key });
  }
}

// hex is a colour of the map as style sheets write it.
export const hex = c => '#' + [0, 8, 16].map(n => ((c >> n) & 255).toString(16).padStart(2, '0')).join('');
export const colourOf = (map, b) => hex(map.tint[b]);

// pixel is a colour as it stands in an image.
function pixel(hex) {
  const h = hex.length === 4 ? hex.replace(/[0-9a-f]/gi, '$&$&') : hex, n = parseInt(h.slice(1), 16);
  return (0xff000000 | (n & 255) << 16 | (n & 0xff00) | n >> 16) >>> 0;
}

// mix returns a colour with a part of another one.
function mix(a, b, part) {
  let c = 0xff000000;
  for (const n of [0, 8, 16]) c |= Math.round((a >> n & 255) * (1 - part) + (b >> n & 255) * part) << n;
  return c >>> 0;
}
