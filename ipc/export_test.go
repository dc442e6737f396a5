package ipc

const MaxConns = maxConns

// SetRoom sets how many connections wait that have not said hello.
func SetRoom(s *Server, n int) { s.gate.Room = n }
