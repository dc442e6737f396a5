// Memory over time: what is live, pending and cached stands on each other and adds up
// to what is reserved; lines are what was requested, and the peak.
import { bytes, clock, count, css, duration } from './format.js';

const left = 64, right = 10, top = 8, bottom = 22;
const unseen = 10000; // milliseconds without a sample that are a gap
export const layers = [
  { name: 'Requested', column: 'requested', line: true }, { name: 'Live', column: 'live' }, { name: 'Pending', column: 'pending' },
  { name: 'Cached', column: 'cached' }, { name: 'Reserved', column: 'reserved', line: true }, { name: 'Peak', column: 'peak', line: true, dash: true },
];

export class Chart {
  constructor(root, onPoint) {
    Object.assign(this, { root, onPoint, at: -1 });
    this.canvas = root.querySelector('canvas');
    this.g = this.canvas.getContext('2d');
    root.addEventListener('pointermove', e => this.point(this.nearest(e.clientX - root.getBoundingClientRect().left)));
    root.addEventListener('pointerleave', () => this.point(-1));
    root.addEventListener('blur', () => this.point(-1));
    root.addEventListener('keydown', e => {
      const n = this.s?.time.length, step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -20, PageDown: 20 }[e.key];
      if (!n || !step) return;
      e.preventDefault();
      this.point(Math.min(Math.max((this.at < 0 ? n : this.at) + step, 0), n - 1));
    });
    new ResizeObserver(() => this.draw()).observe(root);
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.draw());
  }

  // show draws samples. Between two that are far apart nobody looked, so nothing is drawn.
  show(s, live) {
    s.cached = s.reserved.map((n, i) => Math.max(n - s.live[i] - s.pending[i], 0));
    this.s = s;
    this.live = live;
    this.inTime = !s.time.length || s.time.at(-1) > 1e11; // else numbers of events
    this.runs = [];
    const n = s.time.length;
    for (let i = 0; i < n; i++) {
      if (i && !(live && s.time[i] - s.time[i - 1] > unseen)) this.runs.at(-1).end = i + 1;
      else this.runs.push({ begin: i, end: i + 1 });
    }
    this.draw();
  }

  nearest(x) {
    const s = this.s;
    if (!s?.time.length) return -1;
    let best = 0;
    for (let i = 1; i < s.time.length; i++) if (Math.abs(this.x(i) - x) < Math.abs(this.x(best) - x)) best = i;
    return best;
  }

  point(i) {
    if (i === this.at) return;
    this.at = i;
    this.onPoint(i);
    this.draw();
  }

  // place lays the runs side by side, with gaps of one width in between: an hour that nobody
  // looked at takes no room from what was seen.
  place() {
    const { s, runs } = this, span = r => s.time[r.end - 1] - s.time[r.begin], all = this.width - left - right;
    const gap = this.gap = Math.min(26, 0.7 * all / runs.length), room = all - gap * (runs.length - 1);
    const seen = runs.reduce((sum, r) => sum + span(r), 0), whole = Math.max(seen, this.live ? 15000 : 1);
    this.scale = room / whole;
    let x = left + (this.live ? room - seen * this.scale : 0);
    for (const r of runs) {
      Object.assign(r, { x, t: s.time[r.begin], until: x + span(r) * this.scale });
      x = r.until + gap;
    }
  }

  runOf(i) { return this.runs.findLast(r => r.begin <= i); }
  x(i) {
    const r = this.runOf(i);
    return r.x + (this.s.time[i] - r.t) * this.scale;
  }
  y(n) { return top + (1 - n / this.most) * (this.height - top - bottom); }
  when(t) { return this.inTime ? clock(t) : `event ${count(t)}`; }

  draw() {
    if (this.waiting) return;
    this.waiting = requestAnimationFrame(() => { this.waiting = 0; this.paint(); });
  }

  paint() {
    const { g, s, root } = this, ratio = devicePixelRatio;
    this.width = root.clientWidth;
    this.height = root.clientHeight;
    const w = Math.round(this.width * ratio), h = Math.round(this.height * ratio);
    if (this.canvas.width !== w || this.canvas.height !== h) Object.assign(this.canvas, { width: w, height: h });
    g.setTransform(ratio, 0, 0, ratio, 0, 0);
    g.clearRect(0, 0, this.width, this.height);
    if (!s?.time.length) return;
    const n = s.time.length;
    this.place();
    this.step = stepFor(Math.max(...s.peak, ...s.reserved, 1));
    this.most = Math.ceil(Math.max(...s.peak, ...s.reserved, 1) / this.step) * this.step;
    this.axes();
    this.gaps();
    let under = new Float64Array(n);
    for (const name of ['live', 'pending', 'cached']) {
      const over = under.map((v, i) => v + s[name][i]);
      this.area(under, over, css(name), name === 'cached' ? 0.55 : 0.9);
      under = over;
    }
    for (const l of layers) if (l.line) this.line(s[l.column], css(l.column), l.dash);
    if (this.at >= 0 && this.at < n) {
      g.fillStyle = css('ink');
      g.fillRect(Math.round(this.x(this.at)), top, 1, this.height - top - bottom);
    }
  }

  axes() {
    const { g } = this;
    g.font = '11px system-ui, sans-serif';
    g.fillStyle = css('muted');
    g.textAlign = 'right';
    g.textBaseline = 'middle';
    for (let v = 0; v <= this.most; v += this.step) {
      const y = Math.round(this.y(v));
      g.fillText(v ? bytes(v, this.most) : '0', left - 8, y);
      g.save();
      g.fillStyle = css('line');
      g.fillRect(left, y, this.width - left - right, 1);
      g.restore();
    }
    g.textBaseline = 'alphabetic';
    let until = -Infinity, before = '';
    for (const { x, text, align } of this.ticks()) {
      const w = g.measureText(text).width, from = align === 'right' ? x - w : align === 'center' ? x - w / 2 : x;
      if (from < until + 10 || text === before) continue;
      g.textAlign = align;
      g.fillText(text, x, this.height - 6);
      until = from + w;
      before = text;
    }
  }

  // ticks are the labels of the lower axis: times of day, or numbers of events, at even
  // distances. The last is that of the last sample.
  ticks() {
    const { runs } = this, parts = this.width < 500 ? 3 : 6, list = [], each = (this.width - left - right) / parts;
    const digits = this.inTime && each / this.scale < 1000 ? 3 : 0;
    const end = runs.at(-1), from = this.live && runs.length === 1 ? left : runs[0].x;
    for (let i = 0; i <= parts; i++) {
      const x = Math.min(from + each * i, end.until), r = runs.findLast(r => r.x <= x) || runs[0];
      if (x > r.until) continue; // in a gap
      const t = Math.round(r.t + (x - r.x) / this.scale);
      list.push({ x, text: this.inTime ? clock(t, digits) : count(t), align: x > this.width - right - 30 ? 'right' : x < left + 30 ? 'left' : 'center' });
    }
    return list;
  }

  // gaps says where nobody looked, and for how long.
  gaps() {
    const { g, s, runs, gap } = this;
    g.save();
    g.fillStyle = css('muted');
    g.textAlign = 'center';
    g.textBaseline = 'middle';
    for (let i = 1; i < runs.length; i++) {
      const x = runs[i - 1].until + gap / 2;
      g.save();
      g.fillStyle = css('gap');
      g.fillRect(x - gap / 2 + 2, top, gap - 4, this.height - top - bottom);
      g.restore();
      if (gap < 14) continue;
      g.translate(x, (this.height + top - bottom) / 2);
      g.rotate(-Math.PI / 2);
      g.fillText(`${duration(s.time[runs[i].begin] - s.time[runs[i - 1].end - 1])} not seen`, 0, 0);
      g.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, 0, 0);
    }
    g.restore();
  }

  // path goes along the samples of a run. A single one is a few pixels wide.
  path(values, r, backwards) {
    const { g } = this, n = r.end - r.begin;
    for (let i = 0; i < n; i++) {
      const j = backwards ? r.end - 1 - i : r.begin + i, x = this.x(j), wide = n === 1 ? Math.min(2, this.gap / 4) : 0;
      g.lineTo(backwards ? x + wide : x - wide, this.y(values[j]));
      g.lineTo(backwards ? x - wide : x + wide, this.y(values[j]));
    }
  }

  area(under, over, colour, alpha) {
    const { g } = this;
    g.globalAlpha = alpha;
    g.fillStyle = colour;
    for (const r of this.runs) {
      g.beginPath();
      this.path(over, r);
      this.path(under, r, true);
      g.fill();
    }
    g.globalAlpha = 1;
  }

  line(values, colour, dash) {
    const { g } = this;
    for (const r of this.runs) {
      g.beginPath();
      this.path(values, r);
      g.setLineDash(dash ? [4, 3] : []);
      g.strokeStyle = colour;
      g.lineWidth = 1.5;
      g.stroke();
    }
    g.setLineDash([]);
  }
}

// stepFor returns the distance of lines: a power of two.
function stepFor(most) {
  let step = 1024;
  while (most / step > 5) step *= 2;
  return step;
}
