// House measures the module's packages and draws them:
//
//	house [-circle DIR]    prints the figures of every package, or the files of one package's largest circle
//	house -picture FILE    draws the packages and their imports, as SVG
//
// It runs in the module's root. Its tests hold who may import whom, and the
// figures.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
)

func main() {
	circle := flag.String("circle", "", "print the files of the largest circle of the package in this `directory`")
	picture := flag.String("picture", "", "write the picture to this `file`")
	flag.Parse()
	if err := run(*circle, *picture); err != nil {
		fmt.Fprintf(os.Stderr, "house: %v\n", err)
		os.Exit(1)
	}
}

func run(circle, picture string) error {
	if picture != "" {
		svg, err := draw(".")
		if err != nil {
			return err
		}
		return os.WriteFile(picture, svg, 0o644)
	}
	f, err := measure(".")
	if err != nil {
		return err
	}
	if circle == "" {
		f.print(os.Stdout)
		return nil
	}
	for _, p := range f.packages {
		if p.dir == circle {
			fmt.Println(strings.Join(p.circle, "\n"))
			return nil
		}
	}
	return errors.New("no package in " + circle)
}
