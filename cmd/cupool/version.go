package main

import (
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func versionCommand() *cobra.Command {
	c := newCommand("version", "print the version", "Prints the version of the tool, its revision where that is known, and Go's.", 0, 0, "")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		_, err := fmt.Fprintln(cmd.OutOrStdout(), version())
		return err
	}
	return c
}

// version is versionOf this program.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	return versionOf(info)
}

// versionOf is a line of what a program was built of.
func versionOf(info *debug.BuildInfo) string {
	version, revision, changed := info.Main.Version, "", ""
	if version == "" {
		version = "(devel)"
	}
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = " " + s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			changed = " with changes"
		}
	}
	return "cupool " + version + revision + changed + " " + info.GoVersion
}
