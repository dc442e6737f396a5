package cupool

// PlanCorruptions are ways to break the books of a Planner, each named for
// the rule that it breaks. They are for a plan whose iteration has served
// two blocks of four requests that are live.
var PlanCorruptions = map[string]map[string]func(*Planner){
	"P1": {
		"two at one place":     func(p *Planner) { l := p.first(); l.slots[1].off, l.slots[1].end = l.slots[0].off, l.slots[0].end },
		"beyond the arena":     func(p *Planner) { p.first().slots[1].end += 1 << 30 },
		"an arena that shrank": func(p *Planner) { p.first().arena.size = 512 },
	},
	"P2": {
		"a block not counted": func(p *Planner) { p.first().live-- },
		"bytes":               func(p *Planner) { p.first().liveBytes += 512 },
		"held for nobody":     func(p *Planner) { l := p.first(); l.slots[0].state = slotHeld; l.live-- },
	},
	"P3": {
		"a death passed over": func(p *Planner) { l := p.first(); l.cursor, l.due = 4, 4 },
		"one of a later time": func(p *Planner) { l := p.first(); l.cursor = 1 },
	},
}

func (p *Planner) first() *lane { return (*p.lanes.Load())[0] }

// Lanes returns how many streams the Planner keeps something of.
func (p *Planner) Lanes() int { return len(*p.lanes.Load()) }
