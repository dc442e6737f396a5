package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/cupool/cupool/cmd/internal/doctor"
)

func TestDoctor(t *testing.T) {
	status, stdout, stderr := tool(t, "doctor")
	assert.Contains(t, []int{0, 1}, status, stderr)
	assert.Regexp(t, `(?m)^(good|MISSING) +compiler`, stdout)
	assert.Regexp(t, `(?m)^(good|MISSING) +GPU`, stdout)
}

func TestPrintLines(t *testing.T) {
	var out bytes.Buffer
	good := doctor.Line{Verdict: doctor.Good, Subject: "compiler", Text: "gcc"}
	advice := doctor.Line{Verdict: doctor.Advice, Subject: "GPU 0 persistence", Text: "off", Do: "switch it on"}
	assert.NoError(t, printLines(&out, []doctor.Line{good, advice}))
	assert.Equal(t, "good    compiler           gcc\nadvice  GPU 0 persistence  off\n                           to do: switch it on\n", out.String())
	assert.ErrorContains(t, printLines(&out, []doctor.Line{good, {Verdict: doctor.Missing, Subject: "GPU"}}), "missing")
}
