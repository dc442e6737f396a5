// Package printable keeps what files and pages of strangers say from changing the
// terminal that it is printed on.
package printable

import (
	"io"
	"strings"
	"unicode"
)

// Text returns s with U+FFFD in place of each control character that is neither a tab nor a line
// break, and of what is no UTF-8.
func Text(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return unicode.ReplacementChar
		}
		return r
	}, s)
}

// Writer returns a writer of text that passes each piece on as Text has it.
func Writer(w io.Writer) io.Writer { return writer{w} }

type writer struct{ w io.Writer }

// Unwrap returns the writer that text is passed on to.
func (w writer) Unwrap() io.Writer { return w.w }

func (w writer) Write(p []byte) (int, error) {
	if _, err := io.WriteString(w.w, Text(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}
