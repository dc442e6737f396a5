//go:build !unix

package main

import (
	"os"
	"os/exec"
)

// become runs a program and ends this one with its exit status. It returns
// only when that fails. An interrupt reaches every program of the console.
func become(path string, args, env []string) error {
	cmd := exec.Command(path, args[1:]...)
	cmd.Args[0], cmd.Env = args[0], env
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	err := cmd.Run()
	if cmd.ProcessState == nil {
		return err
	}
	os.Exit(cmd.ProcessState.ExitCode())
	return nil
}
