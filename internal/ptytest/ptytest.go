// Package ptytest is a terminal for tests of what programs show on one.
package ptytest

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/creack/pty"
	"github.com/stretchr/testify/require"
)

// A Terminal keeps everything that is written to TTY.
type Terminal struct {
	TTY *os.File // the program's side

	control *os.File
	more    chan struct{} // closed at the end
	mu      sync.Mutex
	got     bytes.Buffer
}

// New opens a terminal of a size, or skips the test where there is none.
func New(t *testing.T, rows, columns int) *Terminal {
	t.Helper()
	control, tty, err := pty.Open()
	if errors.Is(err, pty.ErrUnsupported) {
		t.Skip(err)
	}
	require.NoError(t, err)
	s := &Terminal{TTY: tty, control: control, more: make(chan struct{}, 1)}
	s.Resize(t, rows, columns)
	go s.read()
	return s
}

// Resize gives the terminal another size.
func (s *Terminal) Resize(t *testing.T, rows, columns int) {
	t.Helper()
	require.NoError(t, pty.Setsize(s.TTY, &pty.Winsize{Rows: uint16(rows), Cols: uint16(columns)}))
}

// Type sends keys to the program.
func (s *Terminal) Type(t *testing.T, keys string) {
	t.Helper()
	_, err := s.control.WriteString(keys)
	require.NoError(t, err)
}

func (s *Terminal) read() {
	defer close(s.more)
	chunk := make([]byte, 4096)
	for {
		n, err := s.control.Read(chunk)
		s.mu.Lock()
		s.got.Write(chunk[:n])
		s.mu.Unlock()
		if err != nil {
			return
		}
		select {
		case s.more <- struct{}{}:
		default:
		}
	}
}

// Text returns everything that was written so far, with what moves the cursor.
func (s *Terminal) Text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.got.String()
}

// WaitFor returns when the text has been written.
func (s *Terminal) WaitFor(t *testing.T, text string) {
	t.Helper()
	for !strings.Contains(s.Text(), text) {
		_, ok := <-s.more
		require.True(t, ok || strings.Contains(s.Text(), text), "no %q in %q", text, s.Text())
	}
}

// Close returns everything that was written.
func (s *Terminal) Close(t *testing.T) string {
	t.Helper()
	require.NoError(t, s.TTY.Close())
	for range s.more {
	}
	require.NoError(t, s.control.Close())
	return s.Text()
}
