//go:build browser

package pagetest

import (
	"bytes"
	"context"
	"fmt"
	"image/png"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// A browser is a page in headless Chromium. The test fails at its end when the page
// wrote an error or a warning to the console.
type browser struct {
	t   *testing.T
	ctx context.Context
}

// findChromium returns the browser's program.
func findChromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "chrome"} {
		if file, err := exec.LookPath(name); err == nil {
			return file
		}
	}
	t.Fatal("no Chromium is installed (Debian: apt-get install chromium)")
	return ""
}

// openBrowser starts a browser that shows a handler's page.
func openBrowser(t *testing.T, h http.Handler) *browser {
	t.Helper()
	file := findChromium(t)
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	alloc, stop := chromedp.NewExecAllocator(t.Context(), append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(file), chromedp.UserDataDir(profileDir(t)), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.NoFirstRun, chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-sync", true),
		chromedp.WindowSize(1360, 900))...)
	t.Cleanup(stop)
	tab, cancel := chromedp.NewContext(alloc)
	t.Cleanup(func() {
		_ = chromedp.Cancel(tab) // waits for the browser, which writes to its folder till then
		cancel()
	})
	ctx, timeout := context.WithTimeout(tab, 5*time.Minute) // only what hangs is to fail
	t.Cleanup(timeout)
	b := &browser{t, ctx}
	b.watchConsole()
	b.do(chromedp.Navigate(srv.URL + "/debug/cupool/"))
	return b
}

// profileDir returns a folder for the browser, which may write to it for a moment
// after the test.
func profileDir(t *testing.T) string {
	dir, err := os.MkdirTemp("", "cupool-browser")
	require.NoError(t, err)
	t.Cleanup(func() {
		for range 100 {
			if os.RemoveAll(dir) == nil {
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
		t.Logf("%s was not removed", dir)
	})
	return dir
}

// watchConsole collects what goes wrong in the page.
func (b *browser) watchConsole() {
	var mu sync.Mutex
	var wrong []string
	chromedp.ListenTarget(b.ctx, func(ev any) {
		mu.Lock()
		defer mu.Unlock()
		switch e := ev.(type) {
		case *runtime.EventExceptionThrown:
			wrong = append(wrong, e.ExceptionDetails.Error())
		case *runtime.EventConsoleAPICalled:
			wrong = append(wrong, fmt.Sprintf("console.%s: %s", e.Type, e.Args[0].Value))
		case *log.EventEntryAdded:
			if !strings.Contains(e.Entry.URL, "moment=oom") && !strings.Contains(e.Entry.URL, "closing") { // of TestPoolCloses
				wrong = append(wrong, e.Entry.Text+" "+e.Entry.URL)
			}
		}
	})
	b.t.Cleanup(func() {
		mu.Lock()
		defer mu.Unlock()
		require.Empty(b.t, wrong, "what the page wrote to the console")
	})
}

func (b *browser) do(actions ...chromedp.Action) {
	b.t.Helper()
	require.NoError(b.t, chromedp.Run(b.ctx, actions...))
}

// eval returns the value of an expression of JavaScript, a promise's when it comes.
func eval[T any](b *browser, expression string) (v T) {
	b.t.Helper()
	b.do(chromedp.Evaluate(expression, &v, func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }))
	return v
}

// wait waits until an expression is true.
func (b *browser) wait(expression string) {
	b.t.Helper()
	b.do(chromedp.Poll(expression, nil, chromedp.WithPollingInterval(50*time.Millisecond), chromedp.WithPollingTimeout(time.Minute)))
}

// text returns the text of an element.
func (b *browser) text(selector string) string {
	b.t.Helper()
	return eval[string](b, fmt.Sprintf("document.querySelector(%q).innerText", selector))
}

// look sets colours and the width of the window.
func (b *browser) look(scheme string, width, height int64) {
	b.t.Helper()
	b.do(emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}),
		emulation.SetDeviceMetricsOverride(width, height, 1, width < 600))
}

// shot saves a picture of the window as build/NAME.png, for people to look at, when
// CUPOOL_SHOTS is set.
func (b *browser) shot(name string) {
	b.t.Helper()
	dir := os.Getenv("CUPOOL_SHOTS")
	if dir == "" {
		return
	}
	time.Sleep(300 * time.Millisecond)
	var data []byte
	b.do(chromedp.ActionFunc(func(ctx context.Context) (err error) {
		data, err = page.CaptureScreenshot().Do(ctx)
		return err
	}))
	_, err := png.Decode(bytes.NewReader(data))
	require.NoError(b.t, err)
	require.NoError(b.t, os.WriteFile(filepath.Join(dir, name+".png"), data, 0o666))
}
