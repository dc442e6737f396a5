package simdev

import "fmt"

// Check verifies the rule of every stream, W1, and returns the first that is
// broken.
func (d *Device) Check() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range append(d.streams.All(), &d.stream0) {
		if s.completed+uint64(len(s.ops)) != s.submitted {
			return fmt.Errorf("simdev: W1: %d operations are over, %d queued, %d were submitted", s.completed, len(s.ops), s.submitted)
		}
	}
	return nil
}
