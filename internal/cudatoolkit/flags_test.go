package cudatoolkit

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// Flags with spaces survive being joined and split again.
func TestJoin(t *testing.T) {
	for _, c := range []struct {
		now  string
		want string
	}{
		{"", `"-I/my sdk" -g -O2`},
		{"-O0", `"-I/my sdk" -O0`},
		{`"-I/my sdk" -O0`, `"-I/my sdk" -O0`},
		{`'-DX="a b"' "-L/it's here"`, `"-I/my sdk" '-DX="a b"' "-L/it's here"`},
		{`  -O0 "-I/not closed`, `"-I/my sdk" -O0 "-I/not closed"`},
	} {
		sys := System{Getenv: func(string) string { return c.now }}
		assert.Equal(t, c.want, sys.join("CGO_CFLAGS", []string{"-I/my sdk"}), c.now)
	}
}
