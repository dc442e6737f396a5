package planner

// Corruptions are ways to break the books of a Planner, each named for
// the rule that it breaks. They are for a plan whose iteration has served
// two blocks of four requests that are live.
var Corruptions = map[string]map[string]func(*Planner){
	"P1": {
		"two at one place": func(p *Planner) {
			l := p.first()
			l.arena.slots[1].off, l.arena.slots[1].end = l.arena.slots[0].off, l.arena.slots[0].end
		},
		"beyond the arena":     func(p *Planner) { p.first().arena.slots[1].end += 1 << 30 },
		"an arena that shrank": func(p *Planner) { a := &p.first().arena; a.set(a.mint.Block(a.memory.Ptr(), 512, 1, 0)) },
	},
	"P2": {
		"a block not counted": func(p *Planner) { p.first().arena.live-- },
		"bytes":               func(p *Planner) { p.first().arena.liveBytes += 512 },
		"held for no stream":  func(p *Planner) { l := p.first(); l.arena.slots[0].state = slotHeld; l.arena.live-- },
	},
	"P3": {
		"a death passed over": func(p *Planner) { l := p.first(); l.cursor, l.due = 4, 4 },
		"one of a later time": func(p *Planner) { l := p.first(); l.cursor = 1 },
	},
}

func (p *Planner) first() *lane { return p.lanes.Load().list[0] }

// Lanes returns how many streams the Planner keeps something of.
func (p *Planner) Lanes() int {
	if p.made("count lanes") != nil {
		return 0
	}
	return len(p.lanes.Load().list)
}

// Sequences returns how many sequences of requests the first stream's detector remembers.
func (p *Planner) Sequences() int { return len(p.first().find.seen) }
