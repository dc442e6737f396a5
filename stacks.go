package cupool

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
)

// stackTable keeps the Go stacks of live blocks while Config.RecordStacks is
// on. Numbers are one more than the place in the list, 0 is no stack.
type stackTable struct {
	mu   sync.Mutex
	list [][16]uintptr
	free []uint32
}

func (t *stackTable) add(pc [16]uintptr) uint32 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := len(t.free); n > 0 {
		i := t.free[n-1]
		t.free = t.free[:n-1]
		t.list[i-1] = pc
		return i
	}
	t.list = append(t.list, pc)
	return uint32(len(t.list))
}

func (t *stackTable) drop(i uint32) {
	t.mu.Lock()
	t.free = append(t.free, i)
	t.mu.Unlock()
}

// format prints a stack as Go does: function, file and line.
func (t *stackTable) format(i uint32) string {
	if i == 0 {
		return ""
	}
	t.mu.Lock()
	pc := t.list[i-1]
	t.mu.Unlock()
	n := 0
	for n < len(pc) && pc[n] != 0 {
		n++
	}
	var sb strings.Builder
	frames := runtime.CallersFrames(pc[:n])
	for {
		f, more := frames.Next()
		fmt.Fprintf(&sb, "%s\n\t%s:%d\n", f.Function, f.File, f.Line)
		if !more {
			return sb.String()
		}
	}
}
