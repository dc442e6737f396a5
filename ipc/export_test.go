package ipc

const (
	HelloTime = helloTime
	MaxConns  = maxConns
	MaxPieces = maxPieces
)

// SetRoom sets how many connections wait that have not said hello.
func SetRoom(s *Server, n int) { s.gate.Room = n }

// KeptBy returns how many requests and memories a client knows.
func KeptBy(c *Client) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.waiting) + len(c.open)
}

// RecordedOn returns how many streams a memory waits for.
func RecordedOn(m *Memory) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.streams)
}

// Unsent returns how many messages of a client are to be sent.
func Unsent(c *Client) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.unsent)
}

// Kept returns how many blocks, openings and connections a server knows.
func Kept(s *Server) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.shares) + len(s.refs) + len(s.conns)
}

// OpenEnded opens a name over a connection that the server has ended.
func OpenEnded(s *Server, name string) error {
	_, _, err := s.take(&conn{}, Peer{}, name)
	return err
}
