package main

import (
	"fmt"
	"io"

	"github.com/cupool/cupool"
)

const confUsage = "`settings` of the allocator, as in " + cupool.AllocConf + " and before it: KEY:VALUE,..."

// config returns the allocator's settings, from a flag's value and the
// environment, and where each came from.
func config(flag string) (cupool.Config, []cupool.Setting, error) {
	cfg, err := cupool.ParseAllocConf(flag)
	if err != nil {
		return cfg, nil, usageError{err}
	}
	return cupool.ConfigFromEnv(cfg)
}

// printSettings prints a line for each setting.
func printSettings(w io.Writer, list []cupool.Setting) {
	title := "settings"
	for _, s := range list {
		source := s.Source
		if source == cupool.SourceProgram {
			source = "flag"
		}
		switch {
		case s.Field == "":
			source += ", means nothing: " + s.Unused
		case s.Unused != "":
			source += ", not " + s.Unused
		}
		fmt.Fprintf(w, "%s\t%s:%s\t(%s)\n", title, s.Key, s.Value, source)
		title = ""
	}
}
