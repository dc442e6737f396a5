package vmem

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/budget"
	"github.com/cupool/cupool/internal/simdev"
)

const unit = 2 << 20 // bytes: the granularity of the device

var errBroken = errors.New("broken")

func newBudget(limit int64) *budget.Pool {
	return &budget.Pool{Device: &budget.Device{Limit: limit}, Limit: limit, Lock: budget.NewReclaimLock(1, nil)}
}

// setUp returns a mapper over a device of 64 MiB, with a budget of 48.
func setUp(t *testing.T) (*Mapper, *simdev.Device, *budget.Pool) {
	t.Helper()
	d, b := simdev.New(simdev.Config{Capacity: 32 * unit}), newBudget(24*unit)
	m := New(d, "sim", 32*unit, b, func(err error) error { return fmt.Errorf("told: %w", err) })
	require.EqualValues(t, unit, m.Granularity)
	require.EqualValues(t, 32*unit, m.Capacity)
	return m, d, b
}

// TestLimits: what exceeds the device or the budget fails before the device is
// asked.
func TestLimits(t *testing.T) {
	m, d, b := setUp(t)
	p, err := m.Reserve(32 * unit)
	require.NoError(t, err)
	require.NoError(t, m.Fits(32*unit))
	require.ErrorIs(t, m.Fits(33*unit), device.ErrOutOfMemory)
	_, err = m.Create(p, []int64{25 * unit})
	require.ErrorIs(t, err, device.ErrOutOfMemory)
	require.Zero(t, d.Calls(simdev.MemCreate))
	require.Zero(t, b.Held())
	h, err := m.Create(p, []int64{unit, 3 * unit})
	require.NoError(t, err)
	require.EqualValues(t, 2, m.Creates.Load())
	require.EqualValues(t, 2, m.Handles.Load())
	require.ErrorIs(t, m.Fits(29*unit), device.ErrOutOfMemory)
	require.EqualValues(t, 4*unit, b.Most(), "it was kept")
	require.NoError(t, m.Remove(p, Piece{h[0], unit}))
	require.NoError(t, m.Remove(p+unit, Piece{h[1], 3 * unit}))
	require.NoError(t, m.Unreserve(p, 32*unit))
	require.EqualValues(t, 2, m.Releases.Load())
	require.Zero(t, m.Handles.Load())
	require.Zero(t, b.Held())
	require.Zero(t, d.Stats().Reservations+d.Stats().MemHandles+d.Stats().Mappings)
}

// TestFailingCalls: each call of the device fails at each of its places in a
// program that uses everything. What the program is told it has, it has, and
// what it was refused is gone or left over; Retry gives that back.
func TestFailingCalls(t *testing.T) {
	calls := []simdev.Call{
		simdev.AddressReserve, simdev.AddressFree, simdev.MemCreate, simdev.MemRelease,
		simdev.MemMap, simdev.MemSetAccess, simdev.MemUnmap,
	}
	for _, call := range calls {
		for _, always := range []bool{false, true} {
			for nth := 1; ; nth++ {
				m, d, b := setUp(t)
				d.FailNth(call, nth, errBroken)
				if always { // the retries fail, too
					d.FailNth(call, 0, nil)
					if nth > 1 {
						break
					}
					d.FailAlways(call, errBroken)
				}
				failed := program(t, m, d, b)
				reached := d.Calls(call) >= int64(nth)
				if m.Left() && always {
					require.ErrorIs(t, m.Retry(), errBroken)
				}
				d.FailNth(call, 0, nil)
				d.FailAlways(call, nil)
				require.Zero(t, b.Held(), "%v %d", call, nth)
				require.NoError(t, m.Retry(), "%v %d", call, nth)
				require.False(t, m.Left())
				s := d.Stats()
				require.Zero(t, s.Reservations+s.MemHandles+s.Mappings, "%v %d leaks %+v", call, nth, s)
				require.Zero(t, s.UsedBytes)
				require.Equal(t, m.Creates.Load(), m.Releases.Load())
				require.NoError(t, d.Check())
				if !reached {
					require.Greater(t, nth, 1, "%v is never called", call)
					require.NoError(t, failed)
					require.EqualValues(t, 4*unit, b.Most())
					break
				}
				require.ErrorIs(t, failed, errBroken, "%v %d", call, nth)
				require.ErrorContains(t, failed, "told: ", "the error was passed on")
			}
		}
	}
}

// program reserves addresses twice, backs them, maps one piece a second time,
// moves it, and gives everything back that it has. It returns the calls' errors.
func program(t *testing.T, m *Mapper, d *simdev.Device, b *budget.Pool) error {
	t.Helper()
	var errs []error
	note := func(err error) bool {
		errs = append(errs, err)
		return err == nil
	}
	p, err := m.Reserve(8 * unit)
	if !note(err) {
		return err
	}
	q, err := m.Reserve(8 * unit)
	if !note(err) {
		note(m.Unreserve(p, 8*unit))
		return errors.Join(errs...)
	}
	sizes := []int64{unit, 2 * unit, unit}
	handles, err := m.Create(p, sizes)
	if note(err) {
		require.NoError(t, d.Memset(p, 0, 4*unit, 0), "it can be written to")
		require.EqualValues(t, 4*unit, b.Held())
		first, second, third := Piece{handles[0], unit}, Piece{handles[1], 2 * unit}, Piece{handles[2], unit}
		if note(m.Map(q, []Piece{second, first})) { // a second time
			require.NoError(t, d.Memset(q, 0, 3*unit, 0))
			for !note(m.Unmap(q, 3*unit)) {
				if len(errs) > 20 {
					require.NoError(t, d.Check())
					d.FailAlways(simdev.MemUnmap, nil)
				}
			}
		}
		if note(m.Unmap(p, unit)) { // moves
			if note(m.Map(q, []Piece{first})) {
				note(m.Remove(q, first))
			} else {
				note(m.Release(first))
			}
		} else {
			note(m.Remove(p, first))
		}
		note(m.Remove(p+unit, second))
		note(m.Remove(p+3*unit, third))
	}
	note(m.Unreserve(q, 8*unit))
	note(m.Unreserve(p, 8*unit))
	return errors.Join(errs...)
}

// TestLeftoversGiveWay: what could not be unmapped is unmapped before memory is
// mapped there, new memory or some that exists. Where that fails, the error says why.
func TestLeftoversGiveWay(t *testing.T) {
	for name, again := range map[string]func(m *Mapper, p device.Ptr, other Piece) (Piece, error){
		"new": func(m *Mapper, p device.Ptr, _ Piece) (Piece, error) {
			h, err := m.Create(p, []int64{2 * unit})
			if err != nil {
				return Piece{}, err
			}
			return Piece{h[0], 2 * unit}, nil
		},
		"existing": func(m *Mapper, p device.Ptr, other Piece) (Piece, error) {
			return other, m.Map(p, []Piece{other})
		},
	} {
		t.Run(name, func(t *testing.T) {
			m, d, b := setUp(t)
			p, err := m.Reserve(8 * unit)
			require.NoError(t, err)
			h, err := m.Create(p, []int64{unit})
			require.NoError(t, err)
			others, err := m.Create(p+4*unit, []int64{unit})
			require.NoError(t, err)
			d.FailNth(simdev.MemUnmap, 1, errBroken)
			require.ErrorIs(t, m.Remove(p, Piece{h[0], unit}), errBroken)
			require.EqualValues(t, unit, b.Held(), "the program is not asked to keep it")
			require.True(t, m.Left())
			require.Equal(t, 2, d.Stats().Mappings)

			other := Piece{others[0], unit}
			d.FailNth(simdev.MemUnmap, 1, errBroken)
			_, err = again(m, p, other)
			require.ErrorIs(t, err, errBroken, "why the addresses are not free")
			require.Equal(t, 2, d.Stats().Mappings)
			x, err := again(m, p, other) // where the leftover was
			require.NoError(t, err)
			require.False(t, m.Left())
			require.Equal(t, 2, d.Stats().Mappings)
			if x == other {
				require.NoError(t, m.Unmap(p, unit))
			} else {
				require.NoError(t, m.Remove(p, x))
			}
			require.NoError(t, m.Remove(p+4*unit, other))
			require.NoError(t, m.Unreserve(p, 8*unit))
			require.Zero(t, d.Stats().UsedBytes)
		})
	}
}

// TestUnreserveBesideLeftovers: addresses to which memory is mapped that a failing call left go
// back once that has gone; the error is that of the failing call.
func TestUnreserveBesideLeftovers(t *testing.T) {
	for _, again := range []bool{false, true} {
		m, d, _ := setUp(t)
		p, err := m.Reserve(8 * unit)
		require.NoError(t, err)
		h, err := m.Create(p, []int64{unit})
		require.NoError(t, err)
		d.FailNth(simdev.MemUnmap, 1, errBroken)
		require.ErrorIs(t, m.Remove(p, Piece{h[0], unit}), errBroken)
		if again {
			d.FailNth(simdev.MemUnmap, 1, errBroken)
			require.ErrorIs(t, m.Unreserve(p, 8*unit), errBroken)
			require.NoError(t, m.Retry())
		} else {
			require.NoError(t, m.Unreserve(p, 8*unit))
		}
		require.False(t, m.Left())
		require.NoError(t, d.Check())
		require.Zero(t, d.Stats().UsedBytes)
		_, err = m.Reserve(8 * unit)
		require.NoError(t, err)
	}
}

// TestMapperAtOnce: goroutines that map, fail and retry at the same time leave
// nothing behind.
func TestMapperAtOnce(t *testing.T) {
	d := simdev.New(simdev.Config{})
	m := New(d, "sim", 80<<30, newBudget(80<<30), func(err error) error { return err })
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for n := range 300 {
				p, err := m.Reserve(4 * unit)
				if err != nil {
					t.Error(err)
					return
				}
				if i == 0 {
					d.FailNth([]simdev.Call{simdev.MemUnmap, simdev.MemRelease, simdev.MemMap, simdev.AddressFree}[n%4], 1, errBroken)
				}
				if h, err := m.Create(p, []int64{unit, unit}); err == nil {
					_ = m.Remove(p, Piece{h[0], unit})
					_ = m.Remove(p+unit, Piece{h[1], unit})
				}
				_ = m.Unreserve(p, 4*unit)
			}
		})
	}
	wg.Wait()
	for m.Retry() != nil { // a call that is still to fail
	}
	s := d.Stats()
	require.Zero(t, s.Reservations+s.MemHandles+s.Mappings)
	require.Zero(t, m.budget.Held())
}

// TestAliases: memory that goes back to the device is unmapped at its aliases, too. One that
// was ended before is left alone, and one that cannot be unmapped is left over.
func TestAliases(t *testing.T) {
	m, d, b := setUp(t)
	p, err := m.Reserve(8 * unit)
	require.NoError(t, err)
	h, err := m.Create(p, []int64{unit, unit})
	require.NoError(t, err)
	x, y := Piece{h[0], unit}, Piece{h[1], unit}
	require.NoError(t, m.Map(p+2*unit, []Piece{x, x, x, y}))
	for i := range device.Ptr(3) {
		m.AddAlias(x.Handle, p+(2+i)*unit)
	}
	require.True(t, m.HasAlias(x.Handle, p+3*unit))
	m.DropAliases(x.Handle, []device.Ptr{p + 3*unit})
	require.False(t, m.HasAlias(x.Handle, p+3*unit))
	require.NoError(t, m.UnmapAlias(p+3*unit, x), "it is in use and stays mapped")
	require.NoError(t, m.UnmapAlias(p+5*unit, y), "so is this")
	m.AddAlias(y.Handle, p+5*unit)
	m.DropAliases(y.Handle, []device.Ptr{p + 5*unit})
	require.NotContains(t, m.aliases, y.Handle, "no memory is taken for what has none")
	d.FailNth(simdev.MemUnmap, 1, errBroken)
	require.ErrorIs(t, m.UnmapAlias(p+2*unit, x), errBroken)
	require.True(t, m.HasAlias(x.Handle, p+2*unit))
	require.NoError(t, m.UnmapAlias(p+2*unit, x))
	require.False(t, m.HasAlias(x.Handle, p+2*unit))
	require.Equal(t, 5, d.Stats().Mappings)
	require.NoError(t, m.Unmap(p+3*unit, unit))
	d.FailNth(simdev.MemUnmap, 1, errBroken)
	require.ErrorIs(t, m.Remove(p, x), errBroken)
	require.True(t, m.Left())
	require.NoError(t, m.Retry())
	require.EqualValues(t, unit, d.Stats().UsedBytes)
	require.NoError(t, m.UnmapAlias(p+4*unit, x), "it is gone")
	m.AddAlias(y.Handle, p+5*unit)
	require.NoError(t, m.Unmap(p+unit, unit))
	require.NoError(t, m.Release(y))
	require.NoError(t, m.Unreserve(p, 8*unit))
	require.Empty(t, m.aliases)
	require.Zero(t, b.Held())
	require.Zero(t, d.Stats().Reservations+d.Stats().MemHandles+d.Stats().Mappings)
}
