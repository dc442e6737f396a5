// Package printable keeps what files and pages of strangers say from changing the
// terminal that it is printed on.
package printable

import (
	"io"
	"strings"
	"unicode"
)

// Line returns s, a part of a line, with U+FFFD in place of each control character, and of what is no UTF-8.
func Line(s string) string { return without(s, "") }

// without is Line that leaves some control characters.
func without(s, but string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && !strings.ContainsRune(but, r) {
			return unicode.ReplacementChar
		}
		return r
	}, s)
}

// Writer returns a writer of text that passes each piece on as Line has it, but with tabs and line breaks.
func Writer(w io.Writer) io.Writer { return writer{w} }

type writer struct{ w io.Writer }

// Unwrap returns the writer that text is passed on to.
func (w writer) Unwrap() io.Writer { return w.w }

func (w writer) Write(p []byte) (int, error) {
	if _, err := io.WriteString(w.w, without(string(p), "\n\t")); err != nil {
		return 0, err
	}
	return len(p), nil
}
