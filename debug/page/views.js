// The tables and the description of a block.
import { layers } from './chart.js';
import { addressOf, holders, isHeld, lost, stateOf, weightOf } from './data.js';
import { bar, bytes, clock, count, el, percent, plural, stackLine, stackList, swatch, table } from './format.js';
import { colourOf } from './map.js';

const capital = text => text[0].toUpperCase() + text.slice(1);

// stateText says what a state means.
const stateText = {
  live: 'The program holds it.', pending: 'It was freed, and other streams still use it.', cached: 'It is kept whole for the next request of about its size.',
  free: 'It is free, for any request.', part: 'Its memory is in use at the addresses of a stitched block.', gap: 'These are addresses without memory.',
};

export function showBlock(root, map, b) {
  const s = map.s;
  if (!s || b < 0 || b >= s.n) {
    root.replaceChildren(el('p', { class: 'empty' }, 'Point at a block of the map, or choose one with the arrow keys, to see what it is.'));
    return;
  }
  const state = stateOf(s, b), seg = s.segments[s.seg[b]], facts = [];
  const add = (name, value) => facts.push(el('dt', {}, name), el('dd', {}, value));
  add('Size', `${bytes(s.size[b])}${s.size[b] >= 1024 ? ` (${count(s.size[b])} B)` : ''}`);
  if (isHeld(state)) add('Requested', `${bytes(s.requested[b])}, ${s.size[b] > s.requested[b] ? bytes(s.size[b] - s.requested[b]) : 'nothing'} lost`);
  if (weightOf(s, b) !== 1) add('Stands for', plural(Number(weightOf(s, b).toPrecision(3)), 'block'));
  if (s.label[b]) add('Label', s.labels[s.label[b]]);
  add('Address', addressOf(s, b));
  add('Stream', String(seg.stream));
  add('Segment', `${bytes(seg.size)}, ${seg.small ? 'small' : 'large'}${seg.stitched ? ', stitched' : seg.virtual ? ', virtual' : ''}, ${plural(seg.count, 'block')}`);
  const frames = s.stacks[s.stack[b]];
  root.replaceChildren(
    el('div', { class: 'state' }, swatch(colourOf(map, b)), `${capital(state)} block`),
    el('div', { class: 'muted small' }, stateText[state] || ''), el('dl', {}, ...facts),
    ...(frames.length ? [el('div', { class: 'muted' }, 'Allocated at'), stackList(frames)]
      : isHeld(state) ? [el('p', { class: 'empty' }, 'Its stack was not recorded.')] : []),
  );
}

// spoken is a block in a sentence.
export function spoken(map, b) {
  const s = map.s;
  if (b < 0) return '';
  const seg = s.segments[s.seg[b]], f = s.stacks[s.stack[b]][0];
  return `${capital(stateOf(s, b))} block of ${bytes(s.size[b])}${s.label[b] ? `, label ${s.labels[s.label[b]]}` : ''}${f ? `, allocated in ${f.name.split('/').pop()} line ${f.line}` : ''}, stream ${seg.stream}, block ${count(b - seg.first + 1)} of ${count(seg.count)} of segment ${count(seg.place + 1)} of ${count(s.segments.length)}`;
}

const maxHolders = 50;

// opened keeps which stacks are unfolded, by their text, while tables are filled anew.
const opened = new Set();

function unfolding(frames) {
  const line = stackLine(frames), key = frames.map(f => `${f.filename}:${f.line}`).join('|');
  return el('details', { open: opened.has(key), ontoggle: e => { if (e.target.open) opened.add(key); else opened.delete(key); } }, el('summary', {}, line), stackList(frames));
}

export function showHolders(t, s, by, map, pool, changed) {
  const { total, list } = holders(s, by);
  if (!list.length) return t.replaceChildren(el('caption', {}, 'The program holds nothing.'));
  const known = list.some(h => h.key), none = by === 'stack' ? 'stack not recorded' : 'no label';
  const hint = known ? null : by === 'stack'
    ? pool?.record && !pool.history ? 'No stacks are recorded. Record history shows who allocates from then on.' : 'No stacks are recorded.'
    : 'No block has a label (Pool.WithLabel, Engine.ScopeLabeled).';
  const focus = document.activeElement?.dataset?.key;
  table(t, hint, [['Requested', 'n'], ['', 'bar', 'Bar'], ['Share', 'n'], ['Blocks', 'n'], [by === 'stack' ? 'Allocated in' : 'Label', 'wide fn'], ['', '', 'In the map']],
    list.slice(0, maxHolders).map(h => {
      const on = map.marked?.by === by && map.marked.key === h.key;
      const show = el('button', { type: 'button', 'aria-pressed': String(on), 'data-key': `${by}${h.key}`, 'aria-label': 'Show its blocks in the map', onclick: () => {
        map.mark(on ? null : { by, key: h.key });
        showHolders(t, s, by, map, pool, changed);
        changed();
      } }, 'Show');
      const where = !h.key ? el('span', { class: 'muted' }, none) : by === 'label' ? s.labels[h.key] : unfolding(s.stacks[h.key]);
      return [bytes(h.bytes), bar(h.bytes / total), percent(h.bytes / total), count(Math.round(h.blocks)), where, show];
    }));
  if (focus) t.querySelector(`[data-key="${focus}"]`)?.focus();
}

export function showLost(t, sizes, s) {
  const l = lost(s);
  const rows = [
    ['Lost by rounding, in live blocks', l.rounding], ['Pending: freed, and still used by other streams', l.pending],
    ['Cached whole for the same size', l.cached], ['Free beside blocks in use', l.beside], ['Free in wholly free segments: Trim gives them back', l.whole],
  ];
  const of = n => percent(l.reserved ? n / l.reserved : 0);
  table(t, `Of ${bytes(l.reserved)} reserved. The largest free block has ${bytes(l.largest)} of ${bytes(l.free)} that are free.`,
    [['Reserved and not requested', ''], ['Bytes', 'n'], ['', 'bar', 'Bar'], ['Share', 'n']],
    rows.map(([name, n]) => [name, bytes(n), bar(l.reserved ? n / l.reserved : 0), of(n)]));
  const list = [...l.sizes].sort((a, b) => b[0] - a[0]), most = Math.max(...list.map(x => x[1].bytes), 1);
  if (!list.length) return sizes.replaceChildren(el('caption', {}, 'No block is free.'));
  table(sizes, null, [['Size', ''], ['Blocks', 'n'], ['Bytes', 'n'], ['', 'bar free', 'Bar']],
    list.map(([k, x]) => [`${bytes(2 ** k)} and more`, count(x.blocks), bytes(x.bytes), bar(x.bytes / most)]));
}

const kinds = {
  alloc: 'Allocated', free_requested: 'Freed', free_completed: 'Free completed', segment_alloc: 'Segment from the device', segment_free: 'Segment given back',
  segment_map: 'Memory mapped', segment_unmap: 'Memory unmapped', stitch: 'Stitched', trim: 'Trim', snapshot: 'Snapshot', oom: 'Out of memory',
};

export function showEvents(t, events, pool) {
  if (!events.length) {
    const text = !pool?.live ? 'The snapshot has no events.' : pool.history ? 'Nothing happened yet.'
      : pool.record ? 'Events are not recorded. Record history, above, begins.' : 'Events are not recorded.';
    return t.replaceChildren(el('caption', {}, text));
  }
  const at = e => e.time.startsWith('0001') ? '' : clock(Date.parse(e.time), 3);
  table(t, null, [['No.', 'n'], ['Time', ''], ['Event', ''], ['Size', 'n'], ['Label', ''], ['Address', 'fn'], ['Where', 'wide fn']],
    events.toReversed().map(e => [count(e.number), at(e), kinds[e.action] || e.action, e.size ? bytes(e.size) + (e.weight > 1 ? ` ×${count(Math.round(e.weight))}` : '') : '',
      e.label || '', e.addr && e.action !== 'oom' ? `0x${e.addr.toString(16)}` : '', e.frames?.length ? unfolding(e.frames) : '']));
}

// showSettings lists what somebody has set, apart from the defaults. One that means nothing has no field.
export function showSettings(t, rest, list) {
  const from = x => x.Source === 'program' ? 'the program' : x.Source === 'default' ? '' : x.Source;
  const note = x => !x.Field ? `means nothing: ${x.Unused}` : x.Unused ? `in place of ${x.Unused}` : '';
  const set = list.filter(x => x.Source !== 'default'), rows = set.map(x => [x.Key, x.Value, from(x), note(x)]);
  if (rows.length) table(t, null, [['Setting', 'fn'], ['Value', 'fn'], ['From', 'fn'], ['', 'wide', 'Note']], rows);
  else t.replaceChildren(el('caption', {}, 'All settings are the defaults.'));
  table(rest, null, [['Setting', 'fn'], ['Value', 'wide fn']], list.filter(x => x.Source === 'default').map(x => [x.Key, x.Value]));
}

export function showTimes(t, s, chart) {
  if (!t.closest('details').open) return;
  const n = s.time.length, every = Math.max(1, Math.ceil(n / 60)), rows = [];
  for (let i = n - 1; i >= 0; i -= every) rows.push([chart.when(s.time[i]), ...layers.map(l => bytes(s[l.column][i]))]);
  table(t, null, [['Time', ''], ...layers.map(l => [l.name, 'n'])], rows);
}

const tablePage = 100;

// showSegments lists segments; one of them unfolds to its blocks, a page at a time.
export function showSegments(t, map) {
  const s = map.s, rows = map.order.slice(0, 500).map(i => {
    const seg = s.segments[i];
    return [el('button', { type: 'button', onclick: () => showBlocks(t, map, seg.address, 0) }, 'Blocks'), '0x' + seg.address.toString(16), String(seg.stream), (seg.small ? 'small' : 'large') + (seg.stitched ? ', stitched' : seg.virtual ? ', virtual' : ''), bytes(seg.size), bytes(seg.held), count(seg.count)];
  });
  if (t.dataset.segment) return showBlocks(t, map, BigInt(t.dataset.segment), Number(t.dataset.from));
  table(t, rows.length < s.segments.length ? `The first ${rows.length} of ${count(s.segments.length)} segments` : plural(rows.length, 'segment'), [['', '', 'Blocks'], ['Address', 'fn'], ['Stream', 'n'], ['Kind', ''], ['Size', 'n'], ['In use', 'n'], ['Blocks', 'n']], rows);
}

function showBlocks(t, map, address, from) {
  const s = map.s, seg = s.segments.find(x => x.address === address);
  const leave = () => { delete t.dataset.segment; showSegments(t, map); };
  if (!seg) return leave();
  t.dataset.segment = String(address);
  t.dataset.from = from = Math.max(0, Math.min(from, seg.count - 1));
  const rows = [];
  for (let b = seg.first + from; b < seg.first + Math.min(from + tablePage, seg.count); b++) {
    const frames = s.stacks[s.stack[b]];
    rows.push([addressOf(s, b), capital(stateOf(s, b)), bytes(s.size[b]), isHeld(stateOf(s, b)) ? bytes(s.requested[b]) : '', s.labels[s.label[b]], frames.length ? unfolding(frames) : '']);
  }
  const go = (text, to) => el('button', { type: 'button', disabled: to < 0 || to >= seg.count, onclick: () => showBlocks(t, map, address, to) }, text);
  table(t, el('span', {}, `Segment 0x${address.toString(16)}, blocks ${count(from + 1)} to ${count(from + rows.length)} of ${count(seg.count)} `,
    el('button', { type: 'button', onclick: leave }, 'All segments'), ' ', go('Back', from - tablePage), ' ', go('On', from + tablePage)),
  [['Address', 'fn'], ['State', ''], ['Size', 'n'], ['Requested', 'n'], ['Label', ''], ['Allocated in', 'wide fn']], rows);
}
