package main

import (
	_ "embed"
	"fmt"
	"strings"
)

// opticks are the first propositions of Newton's Opticks, in its fourth edition
// of 1730, whose copyright has run out.
//
//go:embed opticks.txt
var opticks string

// alphabet has the characters that are told from each other. The last one stands
// for all others.
const alphabet = "\n abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.,;:-'()?#"

// sequences are samples of a text: the characters of a stretch of it, and what
// follows each. A batch has the first characters of all its samples, then the
// second ones, and so on.
type sequences struct {
	text  []int // places in the alphabet
	steps int   // characters of a sample
	n     int
	order []int
	x, y  []float32
}

// openText has a network learn from the first nine tenths of the text and tests
// it with the rest.
func openText(o *options) (train, test source, err error) {
	text := charactersOf(opticks)
	part := len(text) * 9 / 10
	t, rest := newSequences(text[:part], o.steps), newSequences(text[part:], o.steps)
	if o.TrainSamples > 0 {
		t.n = min(t.n, o.TrainSamples)
	}
	if t.n < o.Batch || rest.n == 0 {
		return nil, nil, fmt.Errorf("the text has %d samples of %d characters to learn from, too few for a batch of %d", t.n, o.steps, o.Batch)
	}
	return t, rest, nil
}

func charactersOf(text string) (at []int) {
	for _, r := range text {
		i := strings.IndexRune(alphabet, r)
		if i < 0 {
			i = len(alphabet) - 1
		}
		at = append(at, i)
	}
	return at
}

func newSequences(text []int, steps int) *sequences {
	return &sequences{text: text, steps: steps, n: max(0, len(text)-1) / steps}
}

func (s *sequences) len() int { return s.n }

func (s *sequences) varies() bool { return false }

func (s *sequences) shuffle(order []int) { s.order = order }

func (s *sequences) batch(from, size int) (x, y []float32) {
	n := size * s.steps * len(alphabet)
	s.x, s.y = make([]float32, n), make([]float32, n)
	for i := range min(size, s.n-from) {
		at := s.order[from+i] * s.steps
		for t := range s.steps {
			row := (t*size + i) * len(alphabet)
			s.x[row+s.text[at+t]], s.y[row+s.text[at+t+1]] = 1, 1
		}
	}
	return s.x, s.y
}

func (s *sequences) rows(order []int, size int) (rows []int) {
	for from := 0; from < len(order); from += size {
		batch := order[from:min(from+size, len(order))]
		for t := range s.steps {
			for _, i := range batch {
				rows = append(rows, t*s.n+i)
			}
		}
	}
	return rows
}
