package hub

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/quietcore/quietcore/internal/incidents"
	"github.com/quietcore/quietcore/internal/page/site"
)

const (
	// maxAnswers are made at a time.
	maxAnswers = 8
	// patience is how long a reader may take for one.
	patience = 10 * time.Second
	// stuckFor is how long a hub that asks hears nothing at all before it is taken for stuck: an API server that
	// does not answer is heard of earlier.
	stuckFor = 10 * time.Minute
)

//go:embed assets
var embedded embed.FS

func files() (*site.Files, error) {
	own, err := fs.Sub(embedded, "assets")
	if err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	return site.Load(own, site.Shared())
}

// Handler serves the page and what it asks for, and rejects all other requests.
func (h *Hub) Handler() http.Handler {
	mux := http.NewServeMux()
	handle := func(pattern string, answer http.HandlerFunc) {
		mux.Handle(pattern, h.turns.Limited(patience, answer))
	}
	handle("GET /{$}", func(w http.ResponseWriter, r *http.Request) { h.files.Serve(w, r, "index.html") })
	handle("GET /assets/{file}", func(w http.ResponseWriter, r *http.Request) {
		h.files.Serve(w, r, r.PathValue("file"))
	})
	handle("GET /api/fleet", func(w http.ResponseWriter, _ *http.Request) { site.Reply(w, h.fleet()) })
	handle("GET /api/owners", func(w http.ResponseWriter, _ *http.Request) { site.Reply(w, h.owners()) })
	handle("GET /api/incidents", func(w http.ResponseWriter, r *http.Request) {
		q, err := h.queryOf(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		site.Reply(w, h.incidents(q))
	})
	return site.Guard(mux)
}

// queryOf reads a query of an address.
func (h *Hub) queryOf(r *http.Request) (q query, err error) {
	v := r.URL.Query()
	most := h.o.Window.Hours()
	q = query{victim: v.Get("victim"), antagonist: v.Get("antagonist"), by: v.Get("by"), hours: most, limit: maxRows}
	if text := v.Get("hours"); text != "" {
		q.hours, err = strconv.ParseFloat(text, 64)
		if err != nil || !(q.hours > 0 && q.hours <= most) {
			return q, fmt.Errorf("hours is %.20q, must be above 0 and at most %v", text, most)
		}
	}
	orders := []string{"", incidents.ByIncidents, incidents.ByScore, incidents.ByExcess}
	if !slices.Contains(orders, q.by) {
		return q, fmt.Errorf("by is %.20q, must be one of %v", q.by, orders[1:])
	}
	return q, nil
}

// Health answers probes, which come from elsewhere than the page's readers.
func (h *Hub) Health() http.Handler {
	mux := http.NewServeMux()
	answer := func(pattern string, well func() error) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, _ *http.Request) {
			if err := well(); err != nil {
				http.Error(w, err.Error(), http.StatusServiceUnavailable)
				return
			}
			_, _ = w.Write([]byte("ok\n")) // the prober went away
		})
	}
	answer("GET /livez", func() error {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.o.Now().Sub(h.moved) > stuckFor+h.o.Every {
			return errors.New("nothing was asked for a long time")
		}
		return nil
	})
	answer("GET /readyz", func() error {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.rounds == 0 {
			return errors.New("not every node was asked yet")
		}
		return nil
	})
	return mux
}
