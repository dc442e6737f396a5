package debug_test

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/debug"
)

// A program that serves http.DefaultServeMux publishes its allocator.
func ExamplePublish() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	defer debug.Publish("training", pool)()

	// A program does go http.ListenAndServe("localhost:6060", nil).
	r := httptest.NewRequest("GET", "http://localhost/debug/cupool/stats.txt", nil)
	w := httptest.NewRecorder()
	http.DefaultServeMux.ServeHTTP(w, r)
	fmt.Println(w.Code, w.Body.Len() > 0)
	// Output: 200 true
}

// A program with a mux of its own gives the Handler what to show.
func ExampleHandler() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()

	mux := http.NewServeMux()
	mux.Handle("/memory/", debug.Handler(pool))
	srv := httptest.NewServer(mux)
	defer srv.Close()

	resp, err := http.Post(srv.URL+"/memory/trim", "", nil)
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(text))
	// Output: {"released":0}
}
