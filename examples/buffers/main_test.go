package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/cupool/cupool"
)

func TestRun(t *testing.T) {
	for _, device := range []string{"host", "host:16MiB"} {
		t.Run(device, func(t *testing.T) {
			var out bytes.Buffer
			if err := run(&out, device); err != nil {
				t.Fatal(err)
			}
			for _, want := range []string{"result: 3\n", "out of memory", "recovered: 4096 KiB"} {
				if !strings.Contains(out.String(), want) {
					t.Errorf("no %q in\n%s", want, out.String())
				}
			}
		})
	}
}

func TestRunRejectsDevices(t *testing.T) {
	if err := run(&bytes.Buffer{}, "toaster"); !errors.Is(err, cupool.ErrInvalidConfig) {
		t.Errorf("error %v", err)
	}
}
