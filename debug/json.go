package debug

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"

	"github.com/cupool/cupool/internal/bytesize"
	"github.com/cupool/cupool/internal/intern"
	"github.com/cupool/cupool/snapshot"
)

// Blocks and events share their stacks, and JSON repeats them: a file of some kilobytes
// may hold a stack of a megabyte that thousands of blocks have. So there are bounds on
// the bytes of labels and stacks, and a snapshot is written block by block.
const (
	mostText       = 256 << 20 // in a snapshot
	mostEventBytes = 4 << 20   // of an answer with several events, all told
)

// texts adds up how many bytes labels and stacks have as JSON, about.
type texts struct {
	stacks intern.Stacks[snapshot.Frame]
	sizes  []int64 // of a stack's number
	sum    int64
}

func (t *texts) add(label string, s snapshot.Stack) {
	n := t.stacks.Number(s)
	if n == len(t.sizes) {
		size := int64(0)
		for _, f := range s {
			size += int64(len(`{"name":"","filename":"","line":1000},`) + len(f.Function) + len(f.File))
		}
		t.sizes = append(t.sizes, size)
	}
	t.sum += int64(len(label)) + t.sizes[n]
}

// addAll adds those of a snapshot.
func (t *texts) addAll(p *snapshot.Snapshot) {
	for i := range p.Segments {
		for k := range p.Segments[i].Blocks {
			t.add(p.Segments[i].Blocks[k].Label, p.Segments[i].Blocks[k].Stack)
		}
	}
	for i := range p.Events {
		t.add(p.Events[i].Label, p.Events[i].Stack)
	}
	for i := range p.Totals {
		t.add(p.Totals[i].Label, p.Totals[i].Stack)
	}
	for i := range p.Pools {
		t.addAll(&p.Pools[i])
	}
}

// fits says whether a snapshot is not too much as JSON.
func fits(p *snapshot.Snapshot) error {
	var t texts
	if t.addAll(p); t.sum > mostText {
		return refuse(http.StatusConflict, "as JSON the snapshot has %s of labels and stacks, more than %s: snapshot.pickle and blocks have each once",
			bytesize.Format(t.sum), bytesize.Format(mostText))
	}
	return nil
}

// last returns the last events, as many as are asked for and there is room for.
func last(all []snapshot.Event, limit int64) []snapshot.Event {
	n, size := 0, len("[]")
	for ; n < len(all) && int64(n) < limit; n++ {
		data, _ := json.Marshal(&all[len(all)-1-n]) // a plain value
		if size += len(data) + len(","); n > 0 && size > mostEventBytes {
			break
		}
	}
	return append([]snapshot.Event{}, all[len(all)-n:]...)
}

// A jsonWriter writes a snapshot as json.Marshal does, but for line breaks. What fails
// is the writer alone, whose reader is gone then.
type jsonWriter struct {
	*bufio.Writer
	*json.Encoder
}

func writeJSON(w io.Writer, p *snapshot.Snapshot) {
	out := bufio.NewWriter(w)
	jsonWriter{out, json.NewEncoder(out)}.snapshot(p)
	_ = out.Flush()
}

func (j jsonWriter) snapshot(p *snapshot.Snapshot) {
	head := *p
	head.Segments, head.Events, head.Totals, head.Pools = nil, nil, nil, nil
	j.open(head) // segments come last then
	list(j, "", p.Segments, func(s *snapshot.Segment) {
		head := *s
		head.Blocks = nil
		j.open(head)
		list(j, "", s.Blocks, func(b *snapshot.Block) { _ = j.Encode(b) })
		_ = j.WriteByte('}')
	})
	if len(p.Events) > 0 {
		list(j, `,"events":`, p.Events, func(e *snapshot.Event) { _ = j.Encode(e) })
	}
	if len(p.Totals) > 0 {
		list(j, `,"totals":`, p.Totals, func(t *snapshot.Total) { _ = j.Encode(t) })
	}
	if len(p.Pools) > 0 {
		list(j, `,"pools":`, p.Pools, j.snapshot)
	}
	_ = j.WriteByte('}')
}

// open writes an object whose last field is a list that is nil, up to that.
func (j jsonWriter) open(v any) {
	data, _ := json.Marshal(v) // a snapshot's are plain values
	_, _ = j.Write(bytes.TrimSuffix(data, []byte("null}")))
}

func list[T any](j jsonWriter, name string, all []T, write func(*T)) {
	_, _ = j.WriteString(name + "[")
	for i := range all {
		if i > 0 {
			_ = j.WriteByte(',')
		}
		write(&all[i])
	}
	_ = j.WriteByte(']')
}
