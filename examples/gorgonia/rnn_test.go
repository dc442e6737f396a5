package main

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The alphabet has what the text is written in, but for digits and the like.
func TestAlphabet(t *testing.T) {
	require.Len(t, alphabet, 64)
	others := 0
	for _, at := range charactersOf(opticks) {
		if at == len(alphabet)-1 {
			others++
		}
	}
	require.Less(t, 200*others, len(opticks))
	require.Less(t, len(opticks), 60_000)
}

// A batch of some sequences is rows of the batch of all of them.
func TestRowsOfSequences(t *testing.T) {
	s := newSequences(charactersOf(strings.Repeat("all that glisters ", 6)), 5)
	require.Equal(t, 21, s.len())
	natural := make([]int, s.len())
	for i := range natural {
		natural[i] = i
	}
	s.shuffle(natural)
	allX, allY := s.batch(0, s.len())
	order := rand.New(rand.NewPCG(1, 2)).Perm(s.len())
	const size, width = 4, len(alphabet)
	rows := s.rows(order, size)
	require.Len(t, rows, s.len()*5)
	s.shuffle(order)
	for b := range s.len() / size {
		x, y := s.batch(b*size, size)
		for k, row := range rows[b*size*5 : (b+1)*size*5] {
			require.Equal(t, allX[row*width:(row+1)*width], x[k*width:(k+1)*width])
			require.Equal(t, allY[row*width:(row+1)*width], y[k*width:(k+1)*width])
		}
	}
	x, y := s.batch(s.len()-1, 2)
	require.Equal(t, 1, count(x[:2*width]), "of the last sample, and none behind it")
	require.NotEqual(t, x, y)
}

func count(ones []float32) (n int) {
	for _, v := range ones {
		n += int(v)
	}
	return n
}

// Each cell learns to foretell characters, as the tape machine does.
func TestRNNLearns(t *testing.T) {
	onOneProcessor(t)
	for _, cell := range []string{"lstm", "gru"} {
		t.Run(cell, func(t *testing.T) {
			args := []string{"-net", "rnn", "-cell", cell, "-hidden", "12", "-steps", "6", "-batch", "10", "-train-samples", "200", "-epochs", "6"}
			pool, tape := runReport(t, append(args, "-vm", "pool")...), runReport(t, append(args, "-vm", "tape")...)
			require.Equal(t, "rnn", pool.Net)
			require.Less(t, pool.LossLast, 0.9*pool.LossFirst)
			require.Equal(t, tape.LossFirst, pool.LossFirst)
			require.InEpsilon(t, tape.LossLast, pool.LossLast, 1e-3)
			require.Zero(t, pool.LeakedBlocks)
			require.Equal(t, pool.LiveBytesFirst, pool.LiveBytesLast)
		})
	}
}

func TestOptionsOfRNN(t *testing.T) {
	for args, want := range map[string]string{
		"-net rnn -cell rnn":                        "-cell is lstm or gru",
		"-net rnn -steps 0":                         "-steps is 1 to 255",
		"-net rnn -steps 256":                       "-steps is 1 to 255",
		"-net rnn -hidden 8,8":                      "one -hidden layer",
		"-net rnn -shift 1":                         "-net rnn takes no -shift",
		"-net mlp -steps 3":                         "-net mlp takes no -steps",
		"-net rnn -steps 255 -batch 300 -epochs 1":  "too few for a batch of 300",
		"-net rnn -train-samples 5 -batch 6":        "5 samples of 32 characters",
		"-net rnn -steps 32 -hidden none -epochs 1": "one -hidden layer",
	} {
		status, _, stderr := runSmall(t.Context(), strings.Fields(args)...)
		require.NotZero(t, status, args)
		require.Contains(t, stderr, want)
	}
}
