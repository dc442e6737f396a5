package exampletest

import (
	"go/parser"
	"go/token"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPublic(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "x.go", `package x
type Shown struct{ Field int }
type hidden struct{}
type Of[T any] struct{}
const One, two = 1, 2
var Three = 3
func Four() {}
func five() {}
func (Shown) Six() {}
func (*Shown) seven() {}
func (Shown) String() string { return "" }
func (hidden) Eight() {}
func (*Of[T]) Nine() {}
`, parser.SkipObjectResolution)
	require.NoError(t, err)
	require.Equal(t, []string{"Shown", "Of", "One", "Three", "Four", "Six", "Nine"}, public(f))
}
