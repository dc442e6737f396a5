package cupool

import "errors"

// Streams of a family.
//
// Programs have the streams of the root. A pool has a twin of each, at the same
// place, which holds the pool's memory for the stream; twins are made when the
// pool first meets a stream. What a stream was given and how far it is (its
// clock, what it waited for) is known of the root's stream only: blocks of all
// members wait for that, and one event serves them all.

// own returns the member's side of a stream of the family, or nil for a stream
// of another allocator and for one that was closed so long ago that another has
// its place.
func (c *Caching) own(s *Stream) *Stream {
	switch {
	case s.c == c:
		return s
	case s.c != c.family.root:
		return nil
	}
	if list := *c.streams.Load(); int(s.index) < len(list) && list[s.index].base == s {
		return list[s.index]
	}
	return c.addTwin(s)
}

// addTwin makes the twin of a root's stream, and those before it. A pool that
// was closed has none to be used, and a stream that was closed has none when
// another has its place.
func (c *Caching) addTwin(s *Stream) *Stream {
	c.streamsMu.Lock()
	defer c.streamsMu.Unlock()
	if c.closed.Load() {
		return c.def
	}
	for i := uint32(len(*c.streams.Load())); i <= s.index; i++ {
		c.placeLocked(i, c.family.root.stream(i).handle, true)
	}
	if t := c.stream(s.index); t.base == s {
		return t
	} else if c.family.root.stream(s.index) != s {
		return nil
	}
	return c.placeLocked(s.index, s.handle, true)
}

// eachTwin calls f for what the pools of the family have of a stream.
func (s *Stream) eachTwin(f func(twin *Stream)) {
	for _, p := range s.c.family.list() {
		if p == s.c {
			continue
		}
		p.streamsMu.Lock() // one that is being made is seen, or sees what came before
		list := *p.streams.Load()
		p.streamsMu.Unlock()
		if int(s.index) < len(list) && list[s.index].base == s {
			f(list[s.index])
		}
	}
}

// findBase finds the root's stream of which a new one is a twin. One that is
// closed has twins that are.
func (s *Stream) findBase() {
	s.base, s.number = s, s.c.numbers
	s.c.numbers++
	if root := s.c.family.root; root != s.c {
		s.base = root.stream(s.index)
		s.number = s.base.number
		if s.base.heir.Load() != nil {
			s.heir.Store(s.c.def)
		}
	}
}

// closeTwins ends allocating on a stream's twins.
func (s *Stream) closeTwins() {
	s.eachTwin(func(t *Stream) { t.heir.Store(t.c.def) })
}

// reopenTwins takes that back, also for those made meanwhile.
func (s *Stream) reopenTwins() {
	s.eachTwin(func(t *Stream) { t.heir.Store(nil) })
}

// bequeathTwins hands over what the pools have for a stream that is closed and
// whose work is done.
func (s *Stream) bequeathTwins() {
	s.eachTwin(func(t *Stream) {
		t.c.reclaim.Lock()
		defer t.c.reclaim.Unlock()
		if !t.c.closed.Load() {
			t.bequeath()
		}
	})
}

// syncAll waits for the work of all streams of the family.
func (f *family) syncAll() (err error) {
	for _, s := range f.root.openStreams() {
		err = errors.Join(err, s.sync())
	}
	return err
}
