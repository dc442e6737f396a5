package top

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/gdamore/tcell/v2"
)

// plainWidth is that of what is printed where there is no terminal.
const plainWidth = 100

// Find returns the whole URL of a page, which answers.
func Find(ctx context.Context, url string) (string, error) {
	c, err := newClient(url)
	if err != nil {
		return "", err
	}
	_, err = c.pools(ctx)
	return c.base.String(), err
}

// Once asks the page at a URL once and prints its state, as JSON or as text under a title: "" is the URL.
func Once(ctx context.Context, w io.Writer, url, title string, asJSON bool) error {
	c, err := newClient(url)
	if err != nil {
		return err
	}
	if asJSON {
		s, err := c.ask(ctx)
		if err != nil {
			return err
		}
		return json.NewEncoder(w).Encode(s)
	}
	v := &view{title: cmp.Or(title, c.name)}
	if err := v.first(ctx, c); err != nil {
		return err
	}
	for _, l := range v.lines(plainWidth, 0) {
		if _, err := fmt.Fprintln(w, l.text()); err != nil {
			return err
		}
	}
	return nil
}

// Watch shows the page at a URL on the terminal of the process, asking for it
// again after each interval, until the user quits or ctx ends. An error of the first
// question ends it; later ones are shown, and it tries again.
func Watch(ctx context.Context, url string, interval time.Duration) error {
	c, err := newClient(url)
	if err != nil {
		return err
	}
	v := &view{title: c.name, keys: true, interval: interval}
	if err := v.first(ctx, c); err != nil {
		return err
	}
	screen, err := tcell.NewScreen()
	if err != nil {
		return err
	}
	return watch(ctx, screen, v, c.ask)
}

// first asks for the first state.
func (v *view) first(ctx context.Context, c *client) error {
	s, err := c.ask(ctx)
	if err == nil {
		v.add(s)
	}
	return err
}
