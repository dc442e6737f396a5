package pickle

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/testkit"
)

// What all protocols have; package trace reads them as Python wrote them.
func TestRead(t *testing.T) {
	for data, want := range map[string]any{
		"\x80\x02K\x05.":                                int64(5),
		"\x80\x02\x8a\x02\x00\xff.":                     int64(-256),
		"\x80\x02\x8a\x09123456789.":                    Other{},
		"\x80\x02G?\xf8\x00\x00\x00\x00\x00\x00.":       1.5,
		"\x80\x02\x88.":                                 true,
		"\x80\x02\x89.":                                 false,
		"\x80\x02N.":                                    Other{},
		"\x80\x02).":                                    Tuple(nil),
		"\x80\x02K\x01K\x02\x86.":                       Tuple{int64(1), int64(2)},
		"\x80\x02(K\x01K\x02K\x03t.":                    Tuple{int64(1), int64(2), int64(3)},
		"\x80\x02(K\x01K\x02l.":                         &List{[]any{int64(1), int64(2)}},
		"\x80\x02}(U\x01aK\x01U\x01bK\x02U\x01aK\x03u.": &Dict{[]pair{{"a", int64(3)}}},
		"\x80\x02X\x04\x00\x00\x00\xc3\xa4\xc3\xb6.":    "äö",
	} {
		v, n, err := Read(strings.NewReader(data+"the rest"), "a")
		require.NoError(t, err, "%q", data)
		require.Equal(t, want, v, "%q", data)
		require.EqualValues(t, len(data), n, "%q", data)
	}
	v, _, err := Read(strings.NewReader("\x80\x02X\x01\x00\x01\x00" + strings.Repeat("x", 1<<16+1) + "."))
	require.NoError(t, err)
	require.Equal(t, Other{}, v, "a long string is not kept")
	v, _, err = Read(strings.NewReader("\x80\x02}(U\x01aK\x01U\x01bK\x02u."), "a")
	require.NoError(t, err)
	require.EqualValues(t, 1, v.(*Dict).Get("a"))
	require.Nil(t, v.(*Dict).Get("b"), "nobody asked for it")
}

func TestDamagedPickles(t *testing.T) {
	for data, want := range map[string]string{
		"\x80\x06":       "at byte 0: its protocol is 6; those from 0 to 5 are known",
		"\x80\x02.":      "at byte 2: it takes a value where there is none",
		"\x80\x020":      "at byte 2: it takes a value where there is none",
		"\x80\x02NNa":    "at byte 4: it appends to what is no list",
		"\x80\x02N(a":    "at byte 4: it takes a value where there is none",
		"\x80\x021":      "at byte 2: it refers to a mark where there is none",
		"\x80\x02N\x90":  "at byte 3: it refers to a mark where there is none",
		"\x80\x02NNNs":   "at byte 5: it sets a key of what is no dictionary",
		"\x80\x02}(Nu":   "at byte 5: it sets a key without a value",
		"\x80\x02(Nd":    "at byte 4: it sets a key without a value",
		"\x80\x02h\x07":  "at byte 2: it recalls value 7, which it did not keep",
		"\x80\x02gx\n":   `at byte 2: "x" is no number of a kept value`,
		"\x80\x02Ione\n": `at byte 2: "one" is no whole number`,
		"\x80\x02I" + strings.Repeat("x", 1e4) + "\n": `at byte 2: "` + strings.Repeat("x", 32) + `" is no whole number`,
		"\x80\x02Sone\n":                               "at byte 2: the string has no quotes",
		"\x80\x02cos\nsystem\n":                        `at byte 2: instruction "c" is none of a memory snapshot's, which holds plain values`,
		"\x80\x02NQ":                                   `at byte 3: instruction "Q" is none of a memory snapshot's`,
		"\x80\x02\x8b\xff\xff\xff\xff":                 "at byte 7: it is truncated there: unexpected EOF",
		"\x80\x02\x8d\xff\xff\xff\xff\xff\xff\xff\xff": "at byte 2: it has a string of 18446744073709551615 bytes",
		"\x80\x02V" + strings.Repeat("x", 1e5):         "at byte 2: it has a line of more than 65536 bytes",
		"\x80\x02" + strings.Repeat("N", 2<<20):        "at byte 1048578: it has more than 1048576 values that are in no list or dictionary",
		"\x80\x02" + strings.Repeat("(", 2<<20):        "at byte 1048578: it has more than 1048576 marks",
	} {
		_, _, err := Read(strings.NewReader(data))
		var damage *Error
		require.ErrorAs(t, err, &damage)
		require.ErrorContains(t, err, "damaged pickle "+want)
	}
}

// FuzzRead: whatever there is to read, it fails by an Error alone, and allocates no
// more than it may.
func FuzzRead(f *testing.F) {
	f.Add([]byte("\x80\x02}(U\x01aK\x01U\x01bK\x02U\x01a](K\x01K\x02eu."))
	f.Add([]byte("\x80\x04\x95\x00\x00\x00\x00\x00\x00\x00\x00\x8c\x01a\x94h\x00\x86."))
	f.Fuzz(func(t *testing.T, data []byte) {
		testkit.RequireAllocates(t, 1<<20, 256, len(data), func() {
			_, _, err := Read(bytes.NewReader(data), "a", "b")
			if err != nil {
				var damage *Error
				require.ErrorAs(t, err, &damage)
				require.LessOrEqual(t, damage.Offset, int64(len(data)))
			}
		})
	})
}
