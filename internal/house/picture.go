package main

import (
	"bytes"
	"cmp"
	"fmt"
	"html"
	"maps"
	"math"
	"slices"
	"strings"
)

// Sizes in the picture, in its own units.
const (
	boxHeight   = 30
	boxGap      = 14 // between boxes of a row
	floorHeight = 80
	margin      = 16
	labelWidth  = 118 // of the floors' names, at the left
	letterWidth = 7.3 // of the boxes' text, about
)

// A spot is one place in a row: a room's box, or where an arrow from a higher
// row to a lower one passes between the boxes.
type spot struct {
	room     string // "" where an arrow passes
	width    float64
	x        float64 // its middle
	up, down []*spot // where arrows lead to, in the neighbouring rows
}

// draw returns the picture of the packages below root and of who imports whom,
// in either build, as SVG.
func draw(root string) ([]byte, error) {
	imports := map[string]map[string]bool{}
	for _, tags := range []string{"", "gpu"} {
		pkgs, err := load(root, tags)
		if err != nil {
			return nil, err
		}
		for _, p := range pkgs {
			addImports(p, imports)
		}
	}
	keepReachable(imports)
	reduce(imports)
	rows := layOut(imports)
	return svg(rows), nil
}

// addImports adds the rooms that the room of a package imports.
func addImports(p pkg, imports map[string]map[string]bool) {
	from, _, ok := place(p.dir)
	if !ok {
		return
	}
	if imports[from.dir] == nil {
		imports[from.dir] = map[string]bool{}
	}
	for _, f := range p.files {
		for _, path := range f.imports {
			dir, own := ownDir(path)
			if to, _, ok := place(dir); own && ok && to.dir != from.dir {
				imports[from.dir][to.dir] = true
			}
		}
	}
}

// keepReachable removes the internal rooms that no program and no public
// package imports: they are there for tests.
func keepReachable(imports map[string]map[string]bool) {
	keep := map[string]bool{}
	var visit func(dir string)
	visit = func(dir string) {
		if !keep[dir] {
			keep[dir] = true
			for to := range imports[dir] {
				visit(to)
			}
		}
	}
	for dir := range imports {
		if !strings.HasPrefix(dir, "internal/") {
			visit(dir)
		}
	}
	maps.DeleteFunc(imports, func(dir string, _ map[string]bool) bool { return !keep[dir] })
}

// reduce removes the arrows that follow from others: a program that imports
// the root reaches by that what the root imports.
func reduce(imports map[string]map[string]bool) {
	var reaches func(from, to string) bool
	reaches = func(from, to string) bool {
		for next := range imports[from] {
			if next == to || reaches(next, to) {
				return true
			}
		}
		return false
	}
	for _, from := range sorted(imports) {
		for _, to := range sorted(imports[from]) {
			delete(imports[from], to)
			imports[from][to] = !reaches(from, to)
		}
		maps.DeleteFunc(imports[from], func(_ string, keep bool) bool { return !keep })
	}
}

// layOut puts each room into the row of its floor and chooses the order and
// the place of each row's spots.
func layOut(imports map[string]map[string]bool) [][]*spot {
	rows, boxes := make([][]*spot, len(house)), map[string]*spot{}
	for i, f := range house {
		for _, r := range f.rooms {
			if _, ok := imports[r.dir]; ok {
				boxes[r.dir] = &spot{room: r.dir, width: float64(len(label(r.dir)))*letterWidth + 20}
				rows[i] = append(rows[i], boxes[r.dir])
			}
		}
	}
	for _, from := range sorted(imports) {
		_, top, _ := place(from)
		for _, to := range sorted(imports[from]) {
			_, bottom, _ := place(to)
			if boxes[to] == nil || bottom <= top { // in testdata/, or an arrow that TestArrows reports
				continue
			}
			at := boxes[from]
			for i := top + 1; i < bottom; i++ {
				pass := &spot{width: 4}
				rows[i] = append(rows[i], pass)
				connect(at, pass)
				at = pass
			}
			connect(at, boxes[to])
		}
	}
	for _, row := range rows {
		spread(row, func(*spot) float64 { return 0 })
	}
	for range 12 {
		for i := range rows {
			settle(rows[i], func(s *spot) []*spot { return s.up })
		}
		for i := range rows {
			settle(rows[len(rows)-1-i], func(s *spot) []*spot { return s.down })
		}
	}
	for i := range rows {
		settle(rows[i], func(s *spot) []*spot { return append(slices.Clone(s.up), s.down...) })
	}
	for _, row := range rows {
		for _, s := range row {
			slices.SortStableFunc(s.down, func(a, b *spot) int { return cmp.Compare(a.x, b.x) })
		}
	}
	return rows
}

func connect(from, to *spot) {
	from.down = append(from.down, to)
	to.up = append(to.up, from)
}

// settle sorts a row by the middle of each spot's neighbours and moves the
// spots as near to that as the others leave room for.
func settle(row []*spot, neighbours func(*spot) []*spot) {
	middle := func(s *spot) float64 {
		n := neighbours(s)
		if len(n) == 0 {
			return s.x
		}
		sum := 0.0
		for _, o := range n {
			sum += o.x
		}
		return sum / float64(len(n))
	}
	slices.SortStableFunc(row, func(a, b *spot) int { return cmp.Compare(middle(a), middle(b)) })
	spread(row, middle)
}

// spread places the spots of a row in their order, without overlap, so that
// the squares of their distances from where they want to be are least. Spots
// that push each other form a group, which stands at the mean of their wishes.
func spread(row []*spot, wish func(*spot) float64) {
	type group struct {
		from, n   int
		sum, mean float64
	}
	var groups []group
	offsets := make([]float64, len(row))
	wishes := make([]float64, len(row))
	for i, s := range row {
		wishes[i] = wish(s)
		if i > 0 {
			offsets[i] = offsets[i-1] + (row[i-1].width+s.width)/2 + boxGap
		}
		g := group{i, 1, wishes[i] - offsets[i], wishes[i] - offsets[i]}
		for len(groups) > 0 && groups[len(groups)-1].mean > g.mean {
			last := groups[len(groups)-1]
			groups = groups[:len(groups)-1]
			g = group{from: last.from, n: last.n + g.n, sum: last.sum + g.sum}
			g.mean = g.sum / float64(g.n)
		}
		groups = append(groups, g)
	}
	for _, g := range groups {
		for i := g.from; i < g.from+g.n; i++ {
			row[i].x = float64(int(g.mean + offsets[i])) // whole numbers are the same on every machine
		}
	}
}

// label is what a room's box says.
func label(dir string) string {
	if dir == "." {
		return "cupool"
	}
	return strings.TrimPrefix(dir, "internal/")
}

// Colours of the floors, from the top; those below the last have its colour.
var colours = []string{"#dbeafe", "#ddd6fe", "#bfdbfe", "#93c5fd", "#a7f3d0", "#fde68a", "#fed7aa", "#e5e7eb"}

// svg writes the rows as a picture.
func svg(rows [][]*spot) []byte {
	left, right := math.Inf(1), math.Inf(-1)
	for _, row := range rows {
		for _, s := range row {
			left, right = min(left, s.x-s.width/2), max(right, s.x+s.width/2)
		}
	}
	shift := labelWidth + margin - left
	width, height := right+shift+margin, float64(len(rows)*floorHeight+margin+8)
	top := func(row int) float64 { return float64(row*floorHeight + margin) }
	var b bytes.Buffer
	fmt.Fprintf(&b, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\" font-family=\"Helvetica, Arial, sans-serif\">\n", width, height, width, height)
	fmt.Fprintf(&b, "<!-- drawn by internal/house: make layers -->\n")
	fmt.Fprintf(&b, "<defs><marker id=\"head\" markerWidth=\"8\" markerHeight=\"8\" refX=\"7\" refY=\"4\" orient=\"auto\"><path d=\"M0,1 L7,4 L0,7 z\" fill=\"#475569\"/></marker></defs>\n")
	fmt.Fprintf(&b, "<rect width=\"%.0f\" height=\"%.0f\" fill=\"#ffffff\"/>\n", width, height)
	for i, row := range rows {
		fmt.Fprintf(&b, "<rect x=\"4\" y=\"%.0f\" width=\"%.0f\" height=\"%d\" rx=\"6\" fill=\"%s\" fill-opacity=\"0.35\"/>\n", top(i)-10, width-8, boxHeight+20, colours[min(i, len(colours)-1)])
		fmt.Fprintf(&b, "<text x=\"14\" y=\"%.0f\" font-size=\"13\" fill=\"#475569\">%s</text>\n", top(i)+boxHeight/2+5, html.EscapeString(house[i].name))
		for _, s := range row {
			if s.room != "" {
				arrows(&b, s, shift, i, top)
			}
		}
	}
	for i, row := range rows {
		for _, s := range row {
			if s.room == "" {
				continue
			}
			dash, bold := "", ""
			if !strings.HasPrefix(s.room, "internal/") {
				bold = " font-weight=\"bold\""
			} else {
				dash = " stroke-dasharray=\"3 2\""
			}
			fmt.Fprintf(&b, "<rect x=\"%.0f\" y=\"%.0f\" width=\"%.0f\" height=\"%d\" rx=\"5\" fill=\"%s\" stroke=\"#475569\"%s/>\n", s.x-s.width/2+shift, top(i), s.width, boxHeight, colours[min(i, len(colours)-1)], dash)
			fmt.Fprintf(&b, "<text x=\"%.0f\" y=\"%.0f\" text-anchor=\"middle\" font-size=\"13\"%s fill=\"#0f172a\">%s</text>\n", s.x+shift, top(i)+boxHeight/2+5, bold, html.EscapeString(label(s.room)))
		}
	}
	fmt.Fprintf(&b, "<text x=\"14\" y=\"%.0f\" font-size=\"12\" fill=\"#475569\">An arrow says: imports. Arrows that follow from others are left out. Bold: public packages and programs; dashed: internal/.</text>\n</svg>\n", height-12)
	return b.Bytes()
}

// arrows draws the arrows that leave a box, each down to the box where it
// ends.
func arrows(b *bytes.Buffer, s *spot, shift float64, row int, top func(int) float64) {
	for i, to := range s.down {
		x := s.x + shift + s.width*0.8*(float64(i+1)/float64(len(s.down)+1)-0.5)
		y := top(row) + boxHeight
		fmt.Fprintf(b, "<path d=\"M%.0f,%.0f", x, y)
		for r := row + 1; ; r++ {
			x2, y2 := to.x+shift, top(r)
			if to.room != "" {
				y2 -= 1
			}
			fmt.Fprintf(b, " C%.0f,%.0f %.0f,%.0f %.0f,%.0f", x, y+25, x2, y2-25, x2, y2)
			if to.room != "" {
				break
			}
			x, y = x2, y2+boxHeight
			fmt.Fprintf(b, " L%.0f,%.0f", x, y)
			to = to.down[0]
		}
		fmt.Fprintf(b, "\" fill=\"none\" stroke=\"#475569\" stroke-width=\"1.1\" marker-end=\"url(#head)\"/>\n")
	}
}
