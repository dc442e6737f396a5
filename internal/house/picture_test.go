package main

import (
	"bytes"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// docs/layers.svg shows the imports as they are.
func TestPicture(t *testing.T) {
	want, err := draw("../..")
	require.NoError(t, err)
	have, err := os.ReadFile("../../docs/layers.svg")
	require.NoError(t, err)
	have = bytes.ReplaceAll(have, []byte("\r\n"), []byte("\n"))
	assert.True(t, bytes.Equal(want, have), "docs/layers.svg is not what the imports give: run make layers and look at it")
}

func TestReduce(t *testing.T) {
	imports := map[string]map[string]bool{
		"a": {"b": true, "c": true, "d": true},
		"b": {"c": true},
		"c": {"d": true},
		"d": {},
	}
	reduce(imports)
	assert.Equal(t, map[string]map[string]bool{"a": {"b": true}, "b": {"c": true}, "c": {"d": true}, "d": {}}, imports)
}

func TestKeepReachable(t *testing.T) {
	imports := map[string]map[string]bool{
		".":                    {"internal/block": true},
		"internal/block":       {"internal/relaxed": true},
		"internal/relaxed":     {},
		"internal/conformance": {".": true},
	}
	keepReachable(imports)
	assert.ElementsMatch(t, []string{".", "internal/block", "internal/relaxed"}, sorted(imports))
}

// Spots stand where they want to, or share out what they push each other.
func TestSpread(t *testing.T) {
	row := []*spot{{room: "a", width: 10}, {room: "b", width: 10}, {room: "c", width: 30}}
	wish := map[string]float64{"a": 100, "b": 100, "c": 500}
	spread(row, func(s *spot) float64 { return wish[s.room] })
	const apart = 10 + boxGap
	assert.Equal(t, []float64{100 - apart/2, 100 + apart/2, 500}, []float64{row[0].x, row[1].x, row[2].x})
}
