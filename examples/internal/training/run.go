// Package training is what the examples that train a network on MNIST have in
// common: their flags, their data, and how they end and report.
package training

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
)

// The programs' exit statuses.
const (
	ExitOK          = 0
	ExitFailed      = 1
	ExitUsage       = 2
	ExitInterrupted = 130 // as a shell reports Ctrl-C
)

// Main calls run with the program's arguments and a context that Ctrl-C ends,
// and exits with its status. A second Ctrl-C kills.
func Main(run func(ctx context.Context, args []string, stdout, stderr io.Writer) int) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// Usage reports an error of the command line and returns the exit status.
func Usage(name string, err error, stderr io.Writer) int {
	if errors.Is(err, flag.ErrHelp) {
		return ExitOK
	}
	fmt.Fprintf(stderr, "%s: %v (%s -h lists the flags)\n", name, err, name)
	return ExitUsage
}

// A Report is what came of a training, as text and, marshaled, as JSON.
type Report interface {
	// Print writes it for people.
	Print(w io.Writer)
	// Leaked is the number of blocks that are left in the pool.
	Leaked() int64
}

// Ended reports how a training ended, with err or as r says, with a line of
// JSON if that is asked for. It returns the exit status.
func Ended(name string, r Report, err error, asJSON bool, stdout, stderr io.Writer) int {
	if err != nil {
		return failed(name, err, r.Leaked(), stderr)
	}
	r.Print(stdout)
	if asJSON {
		if err := json.NewEncoder(stdout).Encode(r); err != nil {
			return failed(name, err, r.Leaked(), stderr)
		}
	}
	return ExitOK
}

func failed(name string, err error, leaked int64, stderr io.Writer) int {
	var interrupted *Interruption
	if errors.As(err, &interrupted) {
		fmt.Fprintf(stderr, "%s: %v; %d blocks leaked\n", name, err, leaked)
		return ExitInterrupted
	}
	fmt.Fprintf(stderr, "%s: %v\n", name, err)
	return ExitFailed
}

// An Interruption says where the training was when its context ended.
type Interruption struct {
	Epoch, Step, Steps int
	Cause              error
}

func (e *Interruption) Error() string {
	return fmt.Sprintf("interrupted in epoch %d after %d of %d steps: %v", e.Epoch, e.Step, e.Steps, e.Cause)
}

// Unwrap returns why the context ended.
func (e *Interruption) Unwrap() error { return e.Cause }
