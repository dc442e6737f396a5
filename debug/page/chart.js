// Memory over time: what is live, pending and cached stands on each other and adds up
// to what is reserved; lines are what was requested, and the peak.
import { bytes, clock, count, css, duration } from './format.js';

const left = 64, right = 10, top = 8, bottom = 22;
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

  show(s) {
    s.cached = s.reserved.map((n, i) => Math.max(n - s.live[i] - s.pending[i], 0));
    this.s = s;
    this.inTime = !s.time.length || s.time.at(-1) > 1e11; // else numbers of events
    this.draw();
  }

  nearest(x) {
    const s = this.s;
    if (!s?.time.length) return -1;
    let best = 0;
    for (let i = 1; i < s.time.length; i++) if (Math.abs(this.x(s.time[i]) - x) < Math.abs(this.x(s.time[best]) - x)) best = i;
    return best;
  }

  point(i) {
    if (i === this.at) return;
    this.at = i;
    this.onPoint(i);
    this.draw();
  }

  x(t) { return left + (t - this.t0) / (this.t1 - this.t0) * (this.width - left - right); }
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
    this.t1 = s.time[n - 1];
    this.t0 = Math.min(s.time[0], this.inTime ? this.t1 - 15000 : this.t1 - 1);
    this.step = stepFor(Math.max(...s.peak, ...s.reserved, 1));
    this.most = Math.ceil(Math.max(...s.peak, ...s.reserved, 1) / this.step) * this.step;
    this.axes();
    let under = new Float64Array(n);
    for (const name of ['live', 'pending', 'cached']) {
      const over = under.map((v, i) => v + s[name][i]);
      this.area(under, over, css(name), name === 'cached' ? 0.55 : 0.9);
      under = over;
    }
    for (const l of layers) if (l.line) this.line(s[l.column], css(l.column), l.dash);
    if (this.at >= 0 && this.at < n) {
      g.fillStyle = css('ink');
      g.fillRect(Math.round(this.x(s.time[this.at])), top, 1, this.height - top - bottom);
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
      g.fillText(bytes(v), left - 8, y);
      g.save();
      g.fillStyle = css('line');
      g.fillRect(left, y, this.width - left - right, 1);
      g.restore();
    }
    g.textBaseline = 'alphabetic';
    const y = this.height - 6, first = this.s.time[0], span = this.t1 - this.t0;
    const parts = this.width < 500 ? 2 : 5;
    for (let i = 0; i <= parts; i++) {
      const t = this.t0 + span * i / parts;
      if (t < first - span / 100 && !this.inTime) continue;
      g.textAlign = i === 0 ? 'left' : i === parts ? 'right' : 'center';
      g.fillText(!this.inTime ? count(Math.round(t)) : i === parts ? clock(t) : `−${duration(this.t1 - t)}`, this.x(t), y);
    }
  }

  path(values, backwards) {
    const { g, s } = this, n = values.length;
    for (let i = 0; i < n; i++) {
      const j = backwards ? n - 1 - i : i;
      g.lineTo(this.x(s.time[j]), this.y(values[j]));
    }
  }

  area(under, over, colour, alpha) {
    const { g } = this;
    g.beginPath();
    this.path(over);
    this.path(under, true);
    g.closePath();
    g.globalAlpha = alpha;
    g.fillStyle = colour;
    g.fill();
    g.globalAlpha = 1;
  }

  line(values, colour, dash) {
    const { g } = this;
    g.beginPath();
    this.path(values);
    g.setLineDash(dash ? [4, 3] : []);
    g.strokeStyle = colour;
    g.lineWidth = 1.5;
    g.stroke();
    g.setLineDash([]);
  }
}

// stepFor returns the distance of lines: a power of two.
function stepFor(most) {
  let step = 1024;
  while (most / step > 5) step *= 2;
  return step;
}
