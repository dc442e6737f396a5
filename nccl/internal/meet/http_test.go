package meet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/dist"
	"github.com/cupool/cupool/internal/gate"
	"github.com/cupool/cupool/internal/testkit"
)

// come is a rank that asks by hand. It returns when rank 0 has answered with a
// header, which ranks that wait have, too.
func come(t *testing.T, c Config, change ...func(*http.Request)) *http.Response {
	t.Helper()
	url := fmt.Sprintf("http://%s/%s?rank=%d&size=%d", c.Address, c.Name, c.Rank, c.Size)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer "+c.Token)
	for _, f := range change {
		f(r)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for end := time.Now().Add(patient); ; time.Sleep(time.Millisecond) {
		resp, err := client.Do(r)
		if err == nil {
			t.Cleanup(func() { _ = resp.Body.Close() })
			return resp
		}
		require.True(t, time.Now().Before(end), "%v", err)
	}
}

// begin has rank 0 of 3 wait. The result has the others come, until they are not
// refused for ranks by hand that have just gone, and returns what rank 0 says.
func begin(t *testing.T, at Config) (end func() error) {
	said := make(chan error, 1)
	go func() {
		_, err := share(t.Context(), at.as(0, 3))
		said <- err
	}()
	return func() error {
		for rank := 1; rank < 3; rank++ {
			go func() {
				for refused := true; refused; {
					_, err := share(t.Context(), at.as(rank, 3))
					refused = errors.Is(err, cupool.ErrInvalidConfig)
				}
			}()
		}
		return <-said
	}
}

// What is not a rank of the group is told so at once, and changes nothing for the
// others.
func TestRefused(t *testing.T) {
	at := Config{Address: testkit.FreeAddress(t), Token: "secret"}
	end := begin(t, at)
	first := come(t, at.as(1, 3))
	require.Equal(t, http.StatusOK, first.StatusCode)
	for _, test := range []struct {
		name, field, says string
		c                 Config
	}{
		{"another token", "Token", "has another one", Config{Rank: 2, Size: 3, Token: "Secret"}},
		{"a longer token", "Token", "has another one", Config{Rank: 2, Size: 3, Token: "secret-"}},
		{"no token", "Token", "has another one", Config{Rank: 2, Size: 3}},
		{"another size", "Rank, Size", "rank 0 has a group of 3", Config{Rank: 2, Size: 4, Token: "secret"}},
		{"a rank that is there", "Rank, Size", "it has come before, from 127.0.0.1:", Config{Rank: 1, Size: 3, Token: "secret"}},
	} {
		test.c.Address, test.c.Name = at.Address, "test"
		_, err := share(t.Context(), test.c)
		var bad *cupool.ConfigError
		require.ErrorAs(t, err, &bad, test.name)
		require.Equal(t, test.field, bad.Field, test.name)
		require.Contains(t, bad.Reason, test.says, test.name)
		require.NotContains(t, err.Error(), "ecret", test.name)
	}
	_, err := share(t.Context(), at.as(0, 3))
	require.ErrorContains(t, err, "cannot listen at "+at.Address, "a second rank 0")
	other := at.as(2, 3)
	other.Name = "other"
	for within := 100 * time.Millisecond; ; within *= 2 { // longer, until rank 0 has answered
		ctx, cancel := context.WithTimeout(t.Context(), within)
		_, err = share(ctx, other)
		cancel()
		require.ErrorIs(t, err, dist.ErrRank)
		if strings.Contains(err.Error(), `it makes no communicator "other"`) {
			break
		}
		require.Less(t, within, patient, "%v", err)
	}

	for _, query := range []string{"rank=x&size=3", "rank=2", "", "rank=1e9&size=3"} {
		resp := come(t, at.as(2, 3), func(r *http.Request) { r.URL.RawQuery = query })
		require.Equal(t, http.StatusBadRequest, resp.StatusCode, query)
	}
	require.NoError(t, first.Body.Close()) // it goes, and another one comes
	require.NoError(t, end())
}

// Without a token nobody listens but to this machine, and to no page of a browser.
func TestLoopback(t *testing.T) {
	_, port, err := net.SplitHostPort(testkit.FreeAddress(t))
	require.NoError(t, err)
	at := Config{Address: "localhost:" + port}
	end := begin(t, at)
	for name, change := range map[string]func(r *http.Request){
		"no header":      func(r *http.Request) { r.Header.Del("Authorization") },
		"another header": func(r *http.Request) { r.Header.Set("Authorization", "Basic eDp5") },
		"another name":   func(r *http.Request) { r.Host = "evil.example:" + port },
	} {
		require.Equal(t, http.StatusUnauthorized, come(t, at.as(1, 3), change).StatusCode, name)
	}
	addrs, err := net.InterfaceAddrs()
	require.NoError(t, err)
	for _, a := range addrs {
		if ip := a.(*net.IPNet).IP; !ip.IsLoopback() {
			c, err := net.DialTimeout("tcp", net.JoinHostPort(ip.String(), port), time.Second)
			if err == nil {
				_ = c.Close()
			}
			require.Error(t, err, "%v", ip)
		}
	}
	require.NoError(t, end())
	for address, want := range map[string]string{"localhost:1": "localhost:1", "10.0.0.1:1": "10.0.0.1:1", "[::1]:1": "[::1]:1", "first:1": ":1"} {
		require.Equal(t, want, listenAt(address))
	}
}

// A rank that waits ends when rank 0 is killed.
func TestRankZeroIsKilled(t *testing.T) {
	at := Config{Address: testkit.FreeAddress(t), Token: "secret"}
	zero, one := start(t, at.as(0, 3)), start(t, at.as(1, 3))
	time.Sleep(200 * time.Millisecond) // it waits by then, or comes to the same later
	zero.kill()
	require.Contains(t, one.says(), dist.ErrRank.Error())
	require.NoError(t, one.Wait())
}

// A stranger at the address holds no rank for longer than it waits, and what it
// writes is made printable.
func TestStranger(t *testing.T) {
	for name, says := range map[string]string{
		"nothing":     "",
		"no HTTP":     "\x1b[2Jall is well\n",
		"escapes":     "HTTP/1.1 200 OK\r\n\r\n" + `{"Reason":"\u001b[2Jall is well\n"}`,
		"no JSON":     "HTTP/1.1 200 OK\r\n\r\n\x1b[2J",
		"a refusal":   "HTTP/1.1 409 Conflict\r\n\r\n\x1b[2J\n" + strings.Repeat("x", 1<<20),
		"it is gone":  "HTTP/1.1 200 OK\r\n\r\n",
		"without end": "HTTP/1.1 200 OK\r\n\r\n" + `{"Reason":"` + strings.Repeat("x", 1<<20),
		"it waits":    "HTTP/1.1 200 OK\r\n\r\n" + `{"Waits":"\u001b[2J` + strings.Repeat("x", 1<<10) + `\n"}`,
		"redirect":    "HTTP/1.1 302 Found\r\nLocation: http://evil.example/\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			defer l.Close()
			go func() {
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					_, _ = c.Write([]byte(says))
					if says != "" {
						_, _ = c.Read(make([]byte, 1<<10))
						if name == "it waits" {
							continue
						}
						_ = c.Close()
					}
				}
			}()
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			at := Config{Address: l.Addr().String(), Token: "secret"}
			_, err = share(ctx, at.as(1, 2))
			require.Error(t, err)
			require.Less(t, len(err.Error()), 1500)
			require.False(t, strings.ContainsAny(err.Error(), "\x1b\n"), "%q", err)
			require.NotContains(t, err.Error(), "secret")
		})
	}
}

// The ranks meet beside more connections than there is room for, that say nothing, a
// part of a header, or have another token.
func TestCrowd(t *testing.T) {
	for name, says := range map[string]string{
		"nothing": "", "a part of a header": "GET /test?rank=1&size=3 HTTP/1.1\r\nHost: a\r\n",
		"another token": "GET /test?rank=1&size=3 HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer x\r\nContent-Length: 10\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			at := Config{Address: testkit.FreeAddress(t), Token: "secret"}
			end := begin(t, at)
			require.Equal(t, http.StatusUnauthorized, come(t, Config{Address: at.Address, Name: "test"}).StatusCode) // it listens
			for range gate.Waiting + 20 {
				c, err := net.Dial("tcp", at.Address)
				require.NoError(t, err)
				defer c.Close()
				_, _ = c.Write([]byte(says)) // it may have been ended
			}
			require.NoError(t, end())
		})
	}
}
