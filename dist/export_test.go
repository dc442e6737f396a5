package dist

var (
	LocalWithin = localWithin
	FirstHost   = firstHost
)

const Piece = piece

// Meets reports whether a rank waits at a meeting for others.
func Meets(c Comm) bool {
	l := c.(*local)
	l.room.mu.Lock()
	defer l.room.mu.Unlock()
	return l.room.meeting != nil && l.room.meeting.calls[l.rank] != nil
}

// Closing reports whether Close was called.
func Closing(c Comm) bool {
	l := c.(*local)
	l.room.mu.Lock()
	defer l.room.mu.Unlock()
	return l.closing
}

// Queued returns how many batches a rank has given a turn.
func Queued(c Comm) uint64 {
	l := c.(*local)
	l.room.mu.Lock()
	defer l.room.mu.Unlock()
	return l.queued
}
