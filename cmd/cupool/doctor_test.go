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
	assert.Regexp(t, `(?m)^(good|MISSING) +system`, stdout)
	assert.Regexp(t, `(?m)^(MISSING +|good +driver)`, stdout)
}

func TestPrintLines(t *testing.T) {
	var out bytes.Buffer
	good := doctor.Line{Verdict: doctor.Good, Subject: "driver", Text: "for CUDA 13.0"}
	advice := doctor.Line{Verdict: doctor.Advice, Subject: "cuBLAS", Text: "not found", Do: "install it"}
	assert.NoError(t, printLines(&out, []doctor.Line{good, advice}, false))
	assert.Equal(t, "good    driver  for CUDA 13.0\nadvice  cuBLAS  not found\n                to do: install it\n", out.String())
	out.Reset()
	assert.ErrorContains(t, printLines(&out, []doctor.Line{{Verdict: doctor.Missing, Subject: "GPU", Text: "none", Do: "buy"}}, true), "missing")
	assert.JSONEq(t, `[{"Verdict": "MISSING", "Subject": "GPU", "Text": "none", "Do": "buy"}]`, out.String())
	assert.ErrorContains(t, printLines(&out, []doctor.Line{good, {Verdict: doctor.Missing, Subject: "GPU"}}, false), "missing")
}
