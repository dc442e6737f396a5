package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/cupool/cupool/cmd/internal/doctor"
	"github.com/cupool/cupool/cmd/internal/printable"
)

const doctorText = `Looks at what this computer has to run programs on its GPUs: the driver, its
files, each GPU, the programs that hold its memory, cuBLAS and NCCL. Each line
is good, or says what to do. The exit status is 1 when something is missing
without which programs do not run on a GPU. It needs no GPU, and changes
nothing.`

func doctorCommand() *cobra.Command {
	c := newCommand("doctor", "check what this computer has and lacks for CUDA", doctorText, 0, 0, "")
	asJSON := c.Flags().Bool("json", false, jsonUsage)
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		return printLines(printable.Writer(cmd.OutOrStdout()), doctor.Machine{}.Examine(), *asJSON)
	}
	return c
}

// printLines fails when something is missing.
func printLines(stdout io.Writer, lines []doctor.Line, asJSON bool) error {
	missing := slices.ContainsFunc(lines, func(l doctor.Line) bool { return l.Verdict == doctor.Missing })
	if err := writeLines(stdout, lines, asJSON); err != nil || !missing {
		return err
	}
	return errors.New("something is missing to run on a GPU; the lines above say what to do")
}

func writeLines(stdout io.Writer, lines []doctor.Line, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(stdout).Encode(lines)
	}
	w := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	for _, l := range lines {
		fmt.Fprintf(w, "%s\t%s\t%s\n", l.Verdict, l.Subject, l.Text)
		if l.Do != "" {
			fmt.Fprintf(w, "\t\tto do: %s\n", l.Do)
		}
	}
	return w.Flush()
}
