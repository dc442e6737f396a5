package main

import (
	"fmt"
	"slices"
	"strings"
)

// checkArrow says why package from may not import package to, both given by
// their directories below the module's root, or nil.
func checkArrow(from, to string) error {
	a, la, ok := place(from)
	if !ok {
		return fmt.Errorf("package %s has no place in the house: give it one in internal/house/table.go", from)
	}
	b, lb, ok := place(to)
	switch {
	case !ok:
		return fmt.Errorf("package %s has no place in the house: give it one in internal/house/table.go", to)
	case a.dir == b.dir:
		return nil
	case lb < la:
		return fmt.Errorf("%s (%s) imports %s (%s), which stands above it: arrows go only downwards", from, house[la].name, to, house[lb].name)
	case lb == la:
		return fmt.Errorf("%s imports %s, which stands beside it (%s): arrows go only downwards", from, to, house[la].name)
	case a.only != "" && !slices.Contains(strings.Fields(a.only), b.dir):
		return fmt.Errorf("%s imports %s, but may import only: %s", from, to, a.only)
	}
	return nil
}

// checkOutside says why a file of package dir may not import path, a package
// of another module, or nil.
func checkOutside(dir, file, path string) error {
	for module, who := range outside {
		if !within(path, module) {
			continue
		}
		for _, w := range strings.Fields(who) {
			if w == file && dir == "." || !strings.HasSuffix(w, ".go") && within(dir, w) {
				return nil
			}
		}
		return fmt.Errorf("%s/%s imports %s, which only %s may", dir, file, path, who)
	}
	return nil
}

// checkArrows returns what is wrong with the imports of all packages.
func checkArrows(pkgs []pkg) (wrong []error) {
	for _, p := range pkgs {
		if _, _, ok := place(p.dir); !ok {
			wrong = append(wrong, fmt.Errorf("package %s has no place in the house: give it one in internal/house/table.go", p.dir))
			continue
		}
		for _, f := range p.files {
			for _, path := range f.imports {
				err := checkOutside(p.dir, f.name, path)
				if to, own := ownDir(path); own {
					err = checkArrow(p.dir, to)
				}
				if err != nil && !slices.ContainsFunc(wrong, func(e error) bool { return e.Error() == err.Error() }) {
					wrong = append(wrong, err)
				}
			}
		}
	}
	return wrong
}
