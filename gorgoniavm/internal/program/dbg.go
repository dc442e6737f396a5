package program

import "fmt"

func Dump(p *Program) {
	for i := range p.Instrs {
		in := &p.Instrs[i]
		fmt.Println(i, in.Name, in.Op, "step", in.Step, "in", in.In, "parts", in.Parts, "shape", in.Shape, "late", in.Late)
		if in.Group != nil {
			fmt.Println("    ", len(in.Group.Inputs), len(in.Group.Scalars), len(in.Group.Steps), len(in.Group.Outputs), *in.Group)
		}
	}
}
