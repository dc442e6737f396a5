package main

// sanitizing are the root's tests of Config.Sanitize and of zeroing.
const sanitizing = "^Test(Canaries|CanariesElsewhere|Poison|Quarantine|SanitizeAcrossStreams|SanitizeWait|SanitizeSleep|Zero|Guard.*|ConformanceSanitized)$"

// sanitizeMutants are in package sanitize, and where the allocator calls it.
var sanitizeMutants = []mutant{
	{
		name: "freed blocks are not filled",
		old:  `e.full = p.fill(device.Ptr(b.Addr()), Freed, b.Requested(), q.stream) == nil`,
		now:  ``,
		in:   ".", run: sanitizing,
	},
	{
		name: "freed blocks are checked while work on them is under way",
		old:  `if e.epoch > q.clock.Done() && !over {`,
		now:  `if false {`,
		in:   ".", run: sanitizing,
	},
	{
		name: "new blocks are not filled",
		old:  `err = p.fill(at, New, size, s)`,
		now:  `_ = size`,
		in:   ".", run: sanitizing,
	},
	{
		name: "blocks are not filled with zeros when they are handed out",
		old:  `err = p.fill(at, 0, b.Size, s)`,
		now:  ``,
		in:   ".", run: sanitizing,
	},
	{
		name: "blocks are not filled with zeros when they are freed",
		old:  `if p.ZeroOnFree && p.Zero(e.b, q.stream) != nil {`,
		now:  `if false {`,
		in:   ".", run: sanitizing,
	},
	{
		name: "blocks that leave the quarantine are not looked at again",
		old: `
		q.look(e)
		if p.ZeroOnFree && p.Zero(e.b, q.stream) != nil {`,
		now: `
		if p.ZeroOnFree && p.Zero(e.b, q.stream) != nil {`,
		in: ".", run: sanitizing,
	},
	{
		name: "damage is told again and again",
		old: `p.note(&p.told, id, b)
	o := p.Stacks.At(b.Origin())`,
		now: `o := p.Stacks.At(b.Origin())`,
		in:  ".", run: sanitizing,
	},
	{
		name: "the quarantine keeps nothing",
		old:  `for ; q.checked > 0 && q.bytes > limit; n++ {`,
		now:  `for ; q.checked > 0; n++ {`,
		in:   ".", run: sanitizing,
	},
	{
		name: "a freed block with guards keeps its memory",
		old: `e.blank = p.Failed(p.Guards.Unmap(device.Ptr(e.b.Addr()))) == nil
	return e.blank`,
		now: `return true`,
		in:  ".", run: sanitizing,
	},
	{
		name: "Wake unmaps memory that a copy may be writing to",
		old:  `if late := c.awaitFills(heaps); late != nil { // memory that is written to cannot be unmapped`,
		now:  `if late := error(nil); late != nil {`,
		in:   ".", run: "^TestWakeWaitsForCopies$",
	},
}
