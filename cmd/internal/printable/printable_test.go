package printable

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWriter(t *testing.T) {
	var out strings.Builder
	n, err := fmt.Fprint(Writer(&out), "größe\t1\n\x1b[2J\r\x7f\u009b\xff")
	require.NoError(t, err)
	require.Equal(t, 19, n)
	require.Equal(t, "größe\t1\n�[2J����", out.String())

	broken := errors.New("broken")
	_, err = fmt.Fprint(Writer(failing{broken}), "x")
	require.ErrorIs(t, err, broken)
}

func TestLine(t *testing.T) {
	require.Equal(t, "größe�1�2�[2J�", Line("größe\t1\n2\x1b[2J\xff"))
}

type failing struct{ error }

func (f failing) Write([]byte) (int, error) { return 0, f.error }
