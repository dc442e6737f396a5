package hostdev

import "math"

// Corruptions break the rules of a stream, by the rule that they break. The
// device's default stream has run two jobs; its queue is empty.
var Corruptions = map[string]map[string]func(*Device){
	"T1": {
		"a job without a number": func(d *Device) { d.stream0.queue = append(d.stream0.queue, job{}) },
		"a number without a job": func(d *Device) { d.stream0.submitted.Add(1) },
		"a job taken twice":      func(d *Device) { d.stream0.taken++ },
	},
	"T2": {"over before it was taken": func(d *Device) { d.stream0.completed.Add(1) }},
	"T3": {
		"a job that nobody runs": func(d *Device) {
			d.stream0.queue = append(d.stream0.queue, job{})
			d.stream0.submitted.Add(1)
		},
		"a job that is not over": func(d *Device) { d.stream0.completed.Store(1) },
	},
	"T4": {
		"asleep though nothing runs": func(d *Device) { d.stream0.sleep(2, 2) },
		"a wake that is too late":    func(d *Device) { d.stream0.running = true; d.stream0.sleep(1, 2) },
		"a wake that is not set":     func(d *Device) { d.stream0.running = true; d.stream0.sleep(1, math.MaxUint64) },
	},
}

// sleep books a goroutine that sleeps until job n is over.
func (s *stream) sleep(n, wake uint64) {
	s.sleepers = append(s.sleepers, n)
	s.wake.Store(wake)
}

// Idle reports whether the default stream has no runner.
func (d *Device) Idle() bool {
	d.stream0.mu.Lock()
	defer d.stream0.mu.Unlock()
	return !d.stream0.running
}
