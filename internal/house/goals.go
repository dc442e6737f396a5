package main

import "fmt"

// The goals: what the house must not grow beyond.
const (
	maxRootFiles = 30   // Go files of the root, without tests
	maxRootNames = 90   // exported top-level names of the root
	maxCircle    = 6    // files of any package that all lead to each other
	maxLines     = 8000 // of any package, without tests
)

// above lists what does not meet its goal yet, with its figure. A figure may
// only fall; what meets its goal leaves the list.
var above = map[string]int{}

// A goal is one figure and what it should be at most.
type goal struct {
	name          string
	figure, limit int
}

// goals returns all figures that have a limit.
func (f figures) goals() []goal {
	all := []goal{
		{"files of the root", f.rootFiles, maxRootFiles},
		{"names of the root", len(f.rootNames), maxRootNames},
	}
	for _, p := range f.packages {
		all = append(all, goal{"circle of " + p.dir, len(p.circle), maxCircle}, goal{"lines of " + p.dir, p.lines, maxLines})
	}
	return all
}

// check says what is wrong with a figure, given the list of those that are
// above their goals, or nil. excused says that the list allows it.
func (g goal) check(above map[string]int) (excused bool, err error) {
	was, listed := above[g.name]
	switch {
	case g.figure <= g.limit && listed:
		return false, fmt.Errorf("%s: %d meets the goal of %d: take it off the list in internal/house/goals.go", g.name, g.figure, g.limit)
	case g.figure <= g.limit:
		return false, nil
	case !listed:
		return false, fmt.Errorf("%s: %d, more than the goal of %d", g.name, g.figure, g.limit)
	case g.figure > was:
		return false, fmt.Errorf("%s: %d, more than the %d of the list in internal/house/goals.go: it may only fall", g.name, g.figure, was)
	}
	return true, nil
}
