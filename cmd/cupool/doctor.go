package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/cupool/cupool/cmd/internal/doctor"
)

const doctorText = `Looks at what this computer has to run programs on its GPUs: the driver, its
files, each GPU, the programs that hold its memory, cuBLAS and NCCL. Each line
is good, or says what to do. The exit status is 1 when something is missing
without which programs do not run on a GPU. It needs no GPU, and changes
nothing.`

// words are how verdicts are printed.
var words = map[doctor.Verdict]string{doctor.Good: "good", doctor.Advice: "advice", doctor.Missing: "MISSING"}

// runDoctor prints what the doctor found.
func runDoctor(_ context.Context, args []string, stdout, stderr io.Writer) error {
	fs := newFlags("doctor", "", doctorText)
	if err := parseAlone(fs, args, stderr); err != nil {
		return err
	}
	return printLines(stdout, doctor.Machine{}.Examine())
}

// printLines fails when something is missing.
func printLines(stdout io.Writer, lines []doctor.Line) error {
	w := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	missing := false
	for _, l := range lines {
		fmt.Fprintf(w, "%s\t%s\t%s\n", words[l.Verdict], l.Subject, l.Text)
		if l.Do != "" {
			fmt.Fprintf(w, "\t\tto do: %s\n", l.Do)
		}
		missing = missing || l.Verdict == doctor.Missing
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if missing {
		return errors.New("something is missing to run on a GPU; the lines above say what to do")
	}
	return nil
}
