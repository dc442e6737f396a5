// The blocks of a snapshot, unpacked from columns.

export const isHeld = name => name === 'live' || name === 'pending';

// decode returns the snapshot: segments, and the blocks' columns. start is where in its
// segment a block begins.
export function decode(d) {
  const n = d.blocks.size.length;
  const s = {
    device: d.device, pool: d.pool, states: d.states, labels: d.labels, n,
    stacks: d.stacks.map(frames => frames.map(i => d.frames[i])),
    size: Float64Array.from(d.blocks.size), requested: Float64Array.from(d.blocks.requested), start: new Float64Array(n),
    state: Uint8Array.from(d.blocks.state), label: Int32Array.from(d.blocks.label), stack: Int32Array.from(d.blocks.stack),
    weight: d.blocks.weight ? Float64Array.from(d.blocks.weight) : null,
    seg: new Int32Array(n), segments: [],
  };
  const c = d.segments;
  let first = 0;
  for (let i = 0; i < c.size.length; i++) {
    const seg = {
      index: i, address: BigInt(c.address[i]), size: c.size[i], stream: c.stream[i], small: !!c.small[i],
      virtual: !!c.virtual[i], stitched: !!c.stitched[i], first, count: c.blocks[i], held: 0, reserved: 0,
    };
    let at = 0;
    for (let b = first; b < first + seg.count; b++) {
      s.start[b] = at;
      s.seg[b] = i;
      at += s.size[b];
      const state = s.states[s.state[b]];
      if (isHeld(state)) seg.held += s.size[b];
      if (state !== 'gap' && !seg.stitched) seg.reserved += s.size[b];
    }
    first += seg.count;
    s.segments.push(seg);
  }
  return s;
}

export const stateOf = (s, b) => s.states[s.state[b]];
export const addressOf = (s, b) => '0x' + (s.segments[s.seg[b]].address + BigInt(s.start[b])).toString(16);
// weightOf is how many blocks one with a stack stands for.
export const weightOf = (s, b) => (s.weight && s.weight[b]) || 1;

// holders sums up what blocks hold by stack or label, largest first. Labels are exact.
// Where blocks were sampled, stacks are estimates, and what is held beyond them is of
// no known stack.
export function holders(s, by) {
  const sums = new Map(), all = { key: 0, bytes: 0, blocks: 0 }, rest = { key: 0, bytes: 0, blocks: 0 };
  for (let b = 0; b < s.n; b++) {
    if (!isHeld(stateOf(s, b))) continue;
    const key = s[by][b], w = by === 'stack' && key ? weightOf(s, b) : 1;
    all.bytes += s.requested[b];
    all.blocks++;
    if (!key) continue;
    let h = sums.get(key);
    if (!h) sums.set(key, h = { key, bytes: 0, blocks: 0 });
    h.bytes += s.requested[b] * w;
    h.blocks += w;
    rest.bytes += s.requested[b] * w;
    rest.blocks += w;
  }
  const total = Math.max(all.bytes, rest.bytes);
  rest.bytes = Math.max(0, all.bytes - rest.bytes);
  rest.blocks = Math.max(0, all.blocks - rest.blocks);
  const list = [...sums.values()];
  if (rest.bytes > 0 && rest.blocks >= 0.5) list.push(rest);
  return { total, list: list.sort((a, b) => b.bytes - a.bytes) };
}

// lost says where memory is that is reserved and not requested, and which free blocks
// there are by power of two.
export function lost(s) {
  const l = { rounding: 0, pending: 0, beside: 0, whole: 0, cached: 0, largest: 0, free: 0, reserved: 0, sizes: new Map() };
  for (const seg of s.segments) {
    l.reserved += seg.reserved;
    for (let b = seg.first; b < seg.first + seg.count; b++) {
      const size = s.size[b];
      switch (stateOf(s, b)) {
        case 'live': l.rounding += size - s.requested[b]; break;
        case 'pending': l.pending += size; break;
        case 'cached': case 'free': {
          if (stateOf(s, b) === 'cached') l.cached += size;
          else if (seg.held > 0) l.beside += size;
          else l.whole += size;
          l.free += size;
          l.largest = Math.max(l.largest, size);
          const k = Math.floor(Math.log2(size)), of = l.sizes.get(k) || { blocks: 0, bytes: 0 };
          of.blocks++;
          of.bytes += size;
          l.sizes.set(k, of);
        }
      }
    }
  }
  return l;
}
