// Package errtext is the texts of errors about blocks. Its types have the fields of
// the types of package cupool that they are converted from.
package errtext

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/cupool/cupool/internal/bytesize"
	"github.com/cupool/cupool/internal/device"
)

// Call is a call on a block that cannot be right, as cupool.BlockError.
type Call struct {
	Op     string
	Ptr    device.Ptr
	Size   int64
	Stream device.Stream
	Err    error
	Detail string
}

func (c Call) String() string {
	var sb strings.Builder
	fmt.Fprintf(&sb, "cupool: %s of %v", c.Op, c.Ptr)
	if c.Size >= 0 {
		fmt.Fprintf(&sb, " (%d bytes)", c.Size)
	}
	if c.Stream != 0 {
		fmt.Fprintf(&sb, " on stream 0x%x", uintptr(c.Stream))
	}
	fmt.Fprintf(&sb, ": %v", c.Err)
	if c.Detail != "" {
		fmt.Fprintf(&sb, ": %s", c.Detail)
	}
	return sb.String()
}

// Leak is a block that was not freed, as cupool.Leak.
type Leak struct {
	Ptr    device.Ptr
	Size   int64
	Stream device.Stream
	Stack  string
	Label  string
}

// Group is leaks from the same place in the program and with the same label.
type Group struct {
	Blocks int
	Bytes  int64  // sum of their sizes as requested
	Stack  string // where they were allocated, as Go prints it; "": not recorded
	Label  string // of WithLabel, if any
}

// Groups returns the groups of n leaks, those of the most bytes first.
func Groups(n int, leak func(i int) Leak) []Group {
	type key struct{ stack, label string }
	at := map[key]int{}
	var list []Group
	for i := range n {
		l := leak(i)
		k := key{l.Stack, l.Label}
		j, ok := at[k]
		if !ok {
			j = len(list)
			at[k], list = j, append(list, Group{Stack: l.Stack, Label: l.Label})
		}
		list[j].Blocks++
		list[j].Bytes += l.Size
	}
	slices.SortStableFunc(list, func(a, b Group) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(b.Blocks, a.Blocks), strings.Compare(a.Label, b.Label))
	})
	return list
}

// String describes the group in a line: "3 blocks, 12 MiB, allocated at main.load
// (train.go:42)", with up to two callers.
func (g Group) String() string {
	s := fmt.Sprintf("%s, %s", blocks(g.Blocks), bytesize.Format(g.Bytes))
	if g.Label != "" {
		s += ", for " + g.Label
	}
	lines := places(g.Stack)
	if len(lines) == 0 {
		return s + ", not recorded where"
	}
	s += ", allocated at " + lines[0]
	if len(lines) > 1 {
		s += ", called by " + strings.Join(lines[1:], ", ")
	}
	return s
}

func blocks(n int) string {
	if n == 1 {
		return "1 block"
	}
	return fmt.Sprintf("%d blocks", n)
}

// maxPlaces is how many functions of a stack are shown.
const maxPlaces = 3

// places returns the innermost functions of a stack, "main.load (train.go:42)",
// without those of libraries that allocate for programs and of Go itself.
func places(stack string) (list []string) {
	lines := strings.Split(strings.TrimSpace(stack), "\n")
	for i := 0; i+1 < len(lines) && len(list) < maxPlaces; i += 2 {
		if !slices.ContainsFunc(libraries, func(l string) bool { return strings.HasPrefix(lines[i], l) }) {
			list = append(list, fmt.Sprintf("%s (%s)", path.Base(lines[i]), path.Base(strings.TrimSpace(lines[i+1]))))
		}
	}
	if len(list) == 0 && len(lines) > 1 {
		return []string{fmt.Sprintf("%s (%s)", path.Base(lines[0]), path.Base(strings.TrimSpace(lines[1])))}
	}
	return list
}

// libraries are the beginnings of the names of such functions.
var libraries = []string{
	"github.com/cupool/cupool.", "github.com/cupool/cupool/adaptor.", "github.com/cupool/cupool/arena.", "github.com/cupool/cupool/gorgoniavm",
	"github.com/cupool/cupool/native.", "github.com/cupool/cupool/nn.", "github.com/cupool/cupool/planner.", "gorgonia.org/tensor.", "gorgonia.org/gorgonia.", "runtime.", "testing.",
}

// maxGroupsShown bounds the text of Leaks.
const maxGroupsShown = 10

// Leaks lists groups, or the first of them, of n leaks that are so many bytes
// together.
func Leaks(n int, bytes int64, groups []Group) string {
	var sb strings.Builder
	fmt.Fprintf(&sb, "cupool: leaked %s, %s", blocks(n), bytesize.Format(bytes))
	for i, g := range groups {
		if i == maxGroupsShown {
			var more Group
			for _, g := range groups[i:] {
				more.Blocks, more.Bytes = more.Blocks+g.Blocks, more.Bytes+g.Bytes
			}
			fmt.Fprintf(&sb, "\n\tand %d more such places: %s, %s", len(groups)-i, blocks(more.Blocks), bytesize.Format(more.Bytes))
			break
		}
		fmt.Fprintf(&sb, "\n\t%v", g)
	}
	return sb.String()
}
