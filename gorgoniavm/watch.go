package gorgoniavm

import (
	"context"
	"fmt"
	"log/slog"
	"math"

	"gorgonia.org/gorgonia"

	"github.com/cupool/cupool/gorgoniavm/internal/program"
)

func (c *config) watching(n *gorgonia.Node) bool {
	return c.watchAll || c.watch.Contains(n)
}

// fellBack counts an operation that the device did not compute. The first of each
// type is told to the VM's logger, or else the pool's: where the CPU cannot touch the
// memory, the copies take most of a run's time.
func (m *VM) fellBack(in *program.Instr) {
	m.fallbacks[in.Name]++
	if m.fallbacks[in.Name] > 1 || m.e.AllocAccessible() {
		return
	}
	log := m.c.log
	if c := m.e.Stream().Pool(); log == nil && c != nil {
		log = c.Config().Logger
	}
	if log == nil {
		return
	}
	log.Warn("gorgoniavm: an operation is computed in Go, on copies in host memory", "op", in.Name, "node", nameOf(in.Node))
}

// look logs and checks a new value.
func (m *VM) look(in *program.Instr, v gorgonia.Value) error {
	if m.c.log != nil {
		m.logValue(in, v)
	}
	if v == nil || !m.c.watchNaN && !m.c.watchInf {
		return nil
	}
	v, err := m.mem.onHost(v)
	if err != nil {
		return err
	}
	if x, bad := m.c.findBad(v); bad {
		return fmt.Errorf("the result has a %v: %w", x, ErrNotANumber)
	}
	return nil
}

func (m *VM) logValue(in *program.Instr, v gorgonia.Value) {
	level := slog.LevelDebug
	watched := m.c.watching(in.Node)
	if watched {
		level = slog.LevelInfo
	}
	if !m.c.log.Enabled(context.Background(), level) {
		return
	}
	attrs := []slog.Attr{slog.String("node", nameOf(in.Node)), slog.String("op", in.Name)}
	if v != nil {
		attrs = append(attrs, slog.Any("shape", v.Shape()), slog.String("type", v.Dtype().String()))
		if watched {
			h, err := m.mem.onHost(v)
			if err != nil {
				h = nil
			}
			attrs = append(attrs, slog.String("value", fmt.Sprintf("%3.3g", h)))
		}
	}
	m.c.log.LogAttrs(context.Background(), level, "gorgoniavm: executed", attrs...)
}

// findBad returns the first number of v that must not be there.
func (c *config) findBad(v gorgonia.Value) (float64, bool) {
	bad := func(x float64) bool {
		return c.watchNaN && math.IsNaN(x) || c.watchInf && math.IsInf(x, 0)
	}
	switch data := v.Data().(type) {
	case float64:
		return data, bad(data)
	case float32:
		return float64(data), bad(float64(data))
	case []float64:
		for _, x := range data {
			if bad(x) {
				return x, true
			}
		}
	case []float32:
		for _, x := range data {
			if bad(float64(x)) {
				return float64(x), true
			}
		}
	}
	return 0, false
}
