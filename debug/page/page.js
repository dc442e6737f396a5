// The page: what is fetched when, and where it goes.
import { Chart, layers } from './chart.js';
import { decode } from './data.js';
import { bytes, count, css, el, percent, plural, swatch } from './format.js';
import { MemoryMap, hex } from './map.js';
import { showBlock, showEvents, showHolders, showLost, showSegments, showSettings, showTimes, spoken } from './views.js';

const $ = id => document.getElementById(id);
const state = { pools: [], pool: new URLSearchParams(location.search).get('pool') || '', moment: '', paused: false, s: null, tags: {}, series: null, events: [], oom: null, by: 'stack' };

const chart = new Chart($('time'), i => { timeLegend(i); });
const map = new MemoryMap($('map'), {
  onPoint: b => block(b >= 0 ? b : map.selected),
  onSelect: (b, byKey) => { block(b); if (byKey) say(spoken(map, b)); },
  onScale: (scale, fits) => { $('scale').textContent = `${bytes(scale)} a row${fits ? ', fits' : ''}`; },
});

let said = 0;
function say(text, seconds = 0) {
  $('said').textContent = text;
  $('said').className = seconds ? '' : 'sr';
  clearTimeout(said);
  if (seconds) said = setTimeout(() => { $('said').textContent = ''; }, 1000 * seconds);
}

// query is a path with the pool and the moment that are looked at.
function query(path, more = {}) {
  const q = new URLSearchParams(more);
  if (state.pool) q.set('pool', state.pool);
  if (state.moment && !('moment' in more)) q.set('moment', state.moment);
  const text = q.toString();
  return text ? `${path}?${text}` : path;
}

// get fetches JSON, null if it is what came the last time.
async function get(path, more) {
  const url = query(path, more), headers = {};
  if (state.tags[path]?.url === url) headers['If-None-Match'] = state.tags[path].tag;
  const r = await fetch(url, { headers, cache: 'no-store' });
  if (r.status === 304) return null;
  const data = await r.json();
  if (!r.ok) throw Object.assign(new Error(data.error || r.statusText), { status: r.status });
  state.tags[path] = { url, tag: r.headers.get('ETag') };
  return data;
}

async function post(path, more) {
  const r = await fetch(query(path, more), { method: 'POST' }), data = await r.json();
  if (!r.ok) throw new Error(data.error || r.statusText);
  return data;
}

const current = () => state.pools.find(p => p.id === state.pool) || state.pools[0];

async function pools() {
  const r = await get('pools', {});
  if (!r) return;
  state.pools = r;
  if (!r.some(p => p.id === state.pool)) {
    state.pool = r[0]?.id || '';
    anew();
  }
  $('pool').replaceChildren(...r.map(p => el('option', { value: p.id, selected: p.id === state.pool }, (p.private ? '\u2003' : '') + p.name)));
  const p = current();
  $('device').textContent = p ? p.device : 'There is no allocator.';
  document.title = p ? `${p.name} – cupool` : 'cupool';
  for (const e of document.querySelectorAll('.for-live')) e.hidden = !p?.live || !!state.moment;
  $('history').setAttribute('aria-pressed', String(!!p?.history));
  $('history').textContent = p?.history ? 'Stop history' : 'Record history';
  for (const [id, path] of [['get-json', 'snapshot'], ['get-pickle', 'snapshot.pickle'], ['get-heap', 'heap'], ['get-stats', 'stats.txt']]) $(id).href = query(path);
  for (const a of document.querySelectorAll('a.of')) a.href = query(a.textContent);
}

async function stats() {
  const st = await get('stats');
  if (!st) return;
  const small = text => el('small', {}, text), a = st.All, all = st.Hits + st.Mapped + st.Grown;
  const tiles = [
    ['Reserved', bytes(a.ReservedBytes.Current), st.Limit ? `of ${bytes(st.Limit)}` : ''],
    ['Live', bytes(st.LiveBytes), plural(a.Allocation.Current, 'block')],
    ['Requested', bytes(a.RequestedBytes.Current), ''],
    ['Pending', bytes(st.PendingBytes), ''],
    ['Cached', bytes(st.CachedBytes), `largest ${bytes(st.LargestFree)}`],
    ['Peak reserved', bytes(a.ReservedBytes.Peak), ''],
    ['Fragmentation', percent(st.Fragmentation), 'free, in pieces'],
    ['Hits', all ? percent(st.Hits / all) : '–', all ? `${count(st.Mapped)} mapped, ${count(st.Grown)} grown${st.OOMs ? `, ${count(st.OOMs)} failed` : ''}` : ''],
  ];
  $('tiles').replaceChildren(...tiles.map(([name, value, note]) => el('div', {}, el('dt', {}, name), el('dd', {}, value), el('dd', {}, small(note || '\u00a0')))));
}

async function series() {
  const known = state.series, last = known ? known.first + known.time.length - 1 : -1;
  const s = await get('series', known ? { after: last } : {});
  if (!s) return;
  if (known && s.first <= last) return anew(); // it never had our last sample: the program was started anew
  if (known && s.first === last + 1) {
    for (const c of ['time', 'requested', 'live', 'pending', 'reserved', 'peak']) known[c] = known[c].concat(s[c]).slice(-1200);
    known.first = last + 1 + s.time.length - known.time.length;
  } else state.series = s;
  chart.show(state.series, !!current()?.live);
  timeLegend(chart.at);
  showTimes($('time-table'), state.series, chart);
}

function timeLegend(i) {
  const s = state.series;
  if (!s?.time.length) return;
  const at = i >= 0 && i < s.time.length ? i : s.time.length - 1;
  $('time-legend').replaceChildren(...layers.map(l => el('li', {}, swatch(css(l.column)), l.name, el('b', {}, bytes(s[l.column][at])))),
    el('li', { class: 'muted' }, i >= 0 ? `at ${chart.when(s.time[at])}` : ''));
}

async function blocks() {
  const d = await get('blocks');
  if (!d) return;
  state.s = decode(d);
  map.show(state.s);
  everything();
}

// everything shows what is worked out from the blocks.
function everything() {
  if (!state.s) return;
  legend();
  showHolders($('holders'), state.s, state.by, map, current(), legend);
  showLost($('lost'), $('free'), state.s);
  if ($('segments').open) showSegments($('segment-table'), map);
}

function legend() {
  const s = state.s, text = { stream: k => `Stream ${k}`, label: k => s.labels[k], stack: k => s.stacks[k][0] ? s.stacks[k][0].name.split('/').pop() : '?', state: k => k[0].toUpperCase() + k.slice(1) };
  const list = map.legend().map(({ colour, key }) => el('li', {}, swatch(colour), el('span', { class: 'name', title: text[map.by](key) }, text[map.by](key))));
  if (map.by !== 'state') for (const [colour, name] of [[hex(map.other), 'others'], [map.colours.free, 'free']]) list.push(el('li', {}, swatch(colour), el('span', { class: 'muted' }, name)));
  if (map.marked) list.push(el('li', {}, el('button', { type: 'button', onclick: () => { map.mark(null); everything(); } }, 'Show all blocks')));
  $('map-legend').replaceChildren(...list);
}

function block(b) { showBlock($('block'), map, b); }

async function events() {
  const p = current();
  const after = state.events.length && p?.live && !state.moment ? state.events.at(-1).number : 0;
  const more = await get('events', { after, limit: 200 });
  if (!more) return;
  state.events = (after ? state.events.concat(more) : more).filter(e => e.action !== 'snapshot').slice(-200);
  showEvents($('events'), state.events, p);
}

async function settings() {
  const list = await get('settings');
  if (!list) return;
  $('settings-section').hidden = !list.length;
  showSettings($('settings'), $('default-settings'), list);
}

async function oom() {
  const last = await get('oom', { moment: '' });
  if (last === null && state.tags.oom?.seen) return;
  state.oom = last || state.oom;
  (state.tags.oom ||= {}).seen = true;
  $('oom').hidden = !state.oom;
  if (!state.oom) return;
  const first = state.oom.first, x = state.moment === 'first-oom' && first || state.oom;
  const at = ` at ${new Date(x.time).toLocaleTimeString('en-GB')}`;
  $('oom-line').textContent = state.moment
    ? `You see the moment${at} at which an allocation of ${bytes(x.asked)} failed. Nothing below changes.`
    : `Out of memory${at}: an allocation of ${bytes(x.asked)} failed.`;
  $('oom-why').replaceChildren(...x.why.map(line => el('li', {}, line[0].toUpperCase() + line.slice(1))));
  $('oom-see').hidden = !state.moment && !x.moment;
  $('oom-text').textContent = x.text;
  $('oom-text').hidden = !state.moment && x.moment;
  $('oom-why').hidden = !$('oom-text').hidden; // which has it
  $('oom-see').textContent = state.moment ? 'Back to now' : 'See that moment';
  $('oom-see').setAttribute('aria-pressed', String(!!state.moment));
  $('oom-first').hidden = !first || !!state.moment;
  if (first) $('oom-first').textContent = `See the first, at ${new Date(first.time).toLocaleTimeString('en-GB')}`;
}

// jobs are what is fetched, and how often at most. What takes long is fetched less often.
const jobs = [
  { run: pools, every: 3000 }, { run: oom, every: 2000 }, { run: stats, every: 1000 }, { run: series, every: 1000 },
  { run: blocks, every: 2000 }, { run: events, every: 1000 }, { run: settings, every: 5000 },
].map(j => ({ ...j, next: 0 }));

let failing = '';
async function tick(now) {
  const frozen = state.moment || !current()?.live;
  for (const j of jobs) {
    if (now < j.next || j.next && (state.paused || j.done && frozen && j.run !== pools)) continue;
    const began = performance.now();
    try {
      await j.run();
      if (failing) say('');
      failing = '';
      j.done = true;
    } catch (e) {
      if (e.message !== failing) say(failing = e.status ? e.message : 'The program does not answer.', 1e6);
    }
    j.next = performance.now() + Math.max(j.every, 10 * (performance.now() - began));
  }
}

async function loop() {
  for (;;) {
    if (!document.hidden) await tick(performance.now());
    await new Promise(done => { state.wake = done; setTimeout(done, 250); });
  }
}

// again fetches all anew, after another pool or moment was chosen.
function again() {
  Object.assign(state, { series: null, events: [], tags: {} });
  map.marked = null;
  for (const j of jobs) Object.assign(j, { next: 0, done: false });
  state.wake?.();
}

// anew is again for another allocator.
function anew() {
  state.moment = '';
  state.oom = null;
  again();
}

$('pool').addEventListener('change', e => {
  state.pool = e.target.value;
  anew();
  history.replaceState(null, '', query(location.pathname));
});
$('oom-see').addEventListener('click', () => { state.moment = state.moment ? '' : 'oom'; again(); });
$('oom-first').addEventListener('click', () => { state.moment = 'first-oom'; again(); $('oom-see').focus(); });
$('pause').addEventListener('click', () => {
  state.paused = !state.paused;
  $('pause').setAttribute('aria-pressed', String(state.paused));
  $('pause').textContent = state.paused ? 'Paused' : 'Pause';
});

// act does what a button says.
function act(id, f) {
  $(id).addEventListener('click', async () => {
    $(id).disabled = true;
    try { say(await f(), 8); } catch (e) { say(e.message, 20); }
    $(id).disabled = false;
    $(id).focus();
    for (const j of jobs) Object.assign(j, { next: 0 });
    state.wake?.();
  });
}
act('trim', async () => `Trim gave ${bytes((await post('trim')).released)} back to the device.`);
act('empty', async () => { await post('empty'); return 'The cache is empty.'; });
act('history', async () => {
  const on = !current()?.history;
  await post('history', { on: on ? 1 : 0 });
  return on ? 'History is recorded: stacks and events from here on.' : 'History is not recorded any more.';
});

for (const input of document.querySelectorAll('input[name=by]')) input.addEventListener('change', () => { map.by = input.value; map.recolour(); legend(); block(map.selected); });
for (const input of document.querySelectorAll('input[name=holders]')) input.addEventListener('change', () => { state.by = input.value; everything(); });
for (const [id, factor] of [['zoom-in', 0.5], ['zoom-out', 2], ['zoom-fit', 0]]) $(id).addEventListener('click', () => map.zoom(factor));
$('segments').addEventListener('toggle', () => { if ($('segments').open && state.s) showSegments($('segment-table'), map); });
$('map').addEventListener('keyup', e => { if (e.key === 'Enter' || e.key === 'Escape') everything(); });
document.addEventListener('click', e => { for (const m of document.querySelectorAll('.menu[open]')) if (!m.contains(e.target)) m.open = false; });
document.addEventListener('keydown', e => { if (e.key === 'Escape') for (const m of document.querySelectorAll('.menu[open]')) { m.open = false; m.querySelector('summary').focus(); } });
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => { legend(); timeLegend(chart.at); block(map.selected); });

block(-1);
loop();
