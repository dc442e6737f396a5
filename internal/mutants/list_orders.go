package main

// orderMutants are of what goroutines do without a lock. The tests that play all
// orders of their steps see them.
var orderMutants = []mutant{
	inOrders("a processor is closed without a barrier, in all orders", "internal/magazine",
		`if p.plain.Load() && !barrier() {`, `if false {`),
	inOrders("a goroutine looks at the gate before it announces itself", "internal/magazine", `
	if h.plain.Load() {
		h.busy.SetOwned(1)
	} else {
		h.busy.Store(1)
	}
	return h.gate.Load() == 0`, `
	open := h.gate.Load() == 0
	if h.plain.Load() {
		h.busy.SetOwned(1)
	} else {
		h.busy.Store(1)
	}
	return open`),
	inOrders("a goroutine that has to fence does not", "internal/magazine",
		`h.busy.Store(1)`, `h.busy.SetOwned(1)`),
	inOrders("goroutines are not told to fence", "internal/magazine",
		`p.list[i].plain.Store(false)`, `_ = i`),
	inOrders("goroutines that did not fence are not waited for", "internal/magazine", `
	if !atomic.Modelled || !atomic.StopWorld() {
		runtime.ReadMemStats(new(runtime.MemStats)) // stops the world
	}`, ``),
	inOrders("homes and streams have the same numbers, in all orders", "internal/magazine",
		`const homeMark = 1 << 30`, `const homeMark = 1`),
	inOrders("a stale handle frees a block", "internal/magazine",
		`return b.Word() == w && b.word.CompareAndSwap(uint64(w), uint64(w.With(Cached)))`,
		`w = b.Word(); return w.State() == Live && w.Has(Homed) && b.word.CompareAndSwap(uint64(w), uint64(w.With(Cached)))`),
	inOrders("two goroutines free a block", "internal/magazine",
		`return b.Word() == w && b.word.CompareAndSwap(uint64(w), uint64(w.With(Cached)))`,
		`
	if b.Word() != w {
		return false
	}
	b.SetWord(w.With(Cached))
	return true`),
	inOrders("a block leaves its home by a plain store", "internal/magazine",
		`if b.word.CompareAndSwap(uint64(w), uint64(w&^Homed)) {`,
		`if b.SetWord(w &^ Homed); true {`),
	inOrders("the other processor is not waited for", "internal/magazine", `
	for i := range p.list {
		p.list[i].wait()
	}`, ``),
	inOrders("a goroutine takes from a processor that is closed", "internal/magazine",
		`if sh.tags[i].Load()&bit(tag) != 0 && sh.proc.come() {`,
		`if sh.proc.come(); sh.tags[i].Load()&bit(tag) != 0 {`),
	inOrders("the later of two epochs is not the one that stays", "internal/epoch", `
	for old := p.Load(); old < v && !p.CompareAndSwap(old, v); {
		old = p.Load()
	}`, `
	if p.Load() < v {
		p.Store(v)
	}`),
	inOrders("an event closes the epoch when it is recorded", "internal/epoch", `
	epoch := k.Mark() // before the event: see the package's comment
	e, err := k.events.Record(k.stream)`, `
	e, err := k.events.Record(k.stream)
	epoch := k.Mark()`),
	inOrders("one of two blocks that are freed later is lost", ".", `
		if s.head.CompareAndSwap(n.next, n) {
			return
		}`, `
		s.head.Store(n)
		return`),
	inOrders("a block that is freed later is lost to a drain", ".",
		`for n := s.head.Swap(nil); n != nil; n = n.next {`, `
	n := s.head.Load()
	s.head.Store(nil)
	for ; n != nil; n = n.next {`),
}

// inOrders is a mutant that the tests of a package kill which play all orders.
func inOrders(name, in, old, now string) mutant {
	return mutant{name: name, in: in, old: old, now: now, run: "InAllOrders", tags: "invariants"}
}
