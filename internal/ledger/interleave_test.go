//go:build invariants

package ledger

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/atomic/interleave"
)

// Goroutines count in two ledgers of a book, with their heaps' locks, while another
// one closes a ledger or asks for the sum: nobody waits for ever, and the sum is
// what was counted.
func TestBookInAllOrders(t *testing.T) {
	for name, third := range map[string]func(b *Book, ls []*Ledger, guards []*Guard){
		"sum": func(b *Book, ls []*Ledger, guards []*Guard) {
			for _, g := range guards {
				g.Lock()
			}
			b.Sum(ls)
			for _, g := range guards {
				g.Unlock()
			}
		},
		"exchange": func(b *Book, ls []*Ledger, guards []*Guard) {
			for i, g := range guards {
				g.Lock()
				ls[i].Quiet()
			}
			ls[0].Freed(Small, 512, 500)
			ls[1].Out(Small, 512, 500)
			b.Settle(ls[0], ls[1])
			for _, g := range guards {
				g.Unlock()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := interleave.Explore(interleave.Options{Max: 3000}, func(r *interleave.Run) {
				b := new(Book)
				ls := []*Ledger{{}, {}}
				guards := []*Guard{{}, {}}
				for i, l := range ls {
					l.Open(b, guards[i])
					l.Out(Small, 512, 500)
					r.Go(i, func() {
						guards[i].Lock()
						l.Out(Small, 512, 500)
						guards[i].Unlock()
					})
				}
				r.Go(2, func() { third(b, ls, guards) })
				r.Finally(func() error {
					sum := b.Sum(ls)
					if n := sum[Small][OutBlocks].Now(); n != 4 {
						return fmt.Errorf("%d blocks are out instead of 4", n)
					}
					if k, q, ok := b.Check(); !ok {
						return fmt.Errorf("quantity %d of kind %d is above its peak", q, k)
					}
					if n := b.Peak(Small, OutBlocks); n != 4 {
						return fmt.Errorf("the peak is %d instead of 4", n)
					}
					return nil
				})
			})
			t.Log(r)
			if r.Failure != nil {
				require.FailNow(t, r.Failure.Error())
			}
		})
	}
}
