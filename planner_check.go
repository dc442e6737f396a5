package cupool

import (
	"cmp"
	"fmt"
	"slices"
)

// Check verifies the rules of all plans (P1 to P3, see lane) and returns the
// first that is broken, by its number.
func (p *Planner) Check() error {
	for _, l := range *p.lanes.Load() {
		l.mu.Lock()
		err := l.checkLocked()
		l.mu.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

// checkEvery bounds what checking after every step costs with large plans.
const checkEvery = 1024

// mustCheckLocked is called after every step in builds with -tags
// invariants.
func (l *lane) mustCheckLocked() {
	if len(l.slots) > checkEvery && l.stats.hits%checkEvery != 0 {
		return
	}
	if err := l.checkLocked(); err != nil {
		panic(err)
	}
}

func (l *lane) checkLocked() error {
	type used struct {
		slot
		id uint32
	}
	var all []used
	for i, sl := range l.slots {
		all = append(all, used{sl, uint32(i)})
	}
	for i, sl := range l.strays {
		all = append(all, used{sl, firstStray + uint32(i)})
	}
	live, bytes := 0, int64(0)
	all = slices.DeleteFunc(all, func(u used) bool { return u.state == slotIdle })
	slices.SortFunc(all, func(a, b used) int { return cmp.Compare(a.off, b.off) })
	top := int64(0)
	for _, u := range all {
		if u.off < top || u.off < 0 || u.end > l.arena.size {
			return fmt.Errorf("P1: block %d at %d to %d of an arena of %d bytes, of which %d are taken", u.id, u.off, u.end, l.arena.size, top)
		}
		top = u.end
		if u.state == slotLive {
			live, bytes = live+1, bytes+u.end-u.off
		} else if l.held[u.id] == nil {
			return fmt.Errorf("P2: block %d is held for nobody", u.id)
		}
		if l.serving && !l.expectedLocked(u.id) && !slices.Contains(l.overdue, u.id) {
			return fmt.Errorf("P3: block %d lives beyond its time at request %d and is not overdue", u.id, l.cursor)
		}
	}
	if live != l.live || bytes != l.liveBytes {
		return fmt.Errorf("P2: %d blocks, %d bytes are live; the books say %d, %d", live, bytes, l.live, l.liveBytes)
	}
	return nil
}

// expectedLocked reports whether a block was served in this iteration and
// has not come to its recorded death.
func (l *lane) expectedLocked(id uint32) bool {
	return int64(id) < int64(l.cursor) && l.plan.of.requests[id].death >= int64(l.cursor)
}
