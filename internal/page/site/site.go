// Package site is what the pages have in common: the daemon's, of one node, and the hub's, of all.
//
// A page is files of its own and those of [Shared], which [Load] gives one tag. [Guard] keeps other web sites from
// reading it, and its policy keeps the page from loading anything from elsewhere and from taking text for markup.
// [Turns] bounds how many answers are made at a time, [Listen] connections.
package site

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"path"
	"strings"
	"time"

	"github.com/quietcore/quietcore/internal/control"
	"github.com/quietcore/quietcore/internal/serve"
)

// Limits of all readers together, and of those at one address.
const (
	maxConnections = 64
	maxFromOne     = 48
)

//go:embed assets
var embedded embed.FS

// Shared has the style, the icon and the script that every page uses.
func Shared() fs.FS { return below(embedded) }

// below is the folder assets, which go:embed keeps in the name.
func below(files embed.FS) fs.FS {
	assets, err := fs.Sub(files, "assets")
	if err != nil {
		panic(err) // the name is a constant
	}
	return assets
}

// Files are a page's own files, with a tag that changes with any of them.
type Files struct {
	files map[string][]byte
	tag   string
}

// Load reads the files of some folders.
func Load(folders ...fs.FS) (*Files, error) {
	f := &Files{files: map[string][]byte{}}
	sum := sha256.New()
	for _, folder := range folders {
		list, err := fs.ReadDir(folder, ".")
		if err != nil {
			return nil, fmt.Errorf("files of a page: %w", err)
		}
		for _, one := range list {
			text, err := fs.ReadFile(folder, one.Name())
			if err != nil {
				return nil, fmt.Errorf("files of a page: %w", err)
			}
			if f.files[one.Name()] != nil {
				return nil, fmt.Errorf("files of a page: two are called %s", one.Name())
			}
			f.files[one.Name()] = text
			fmt.Fprintf(sum, "%s %d\n", one.Name(), len(text))
			sum.Write(text)
		}
	}
	f.tag = hex.EncodeToString(sum.Sum(nil)[:8])
	return f, nil
}

// Tag is another one after every change.
func (f *Files) Tag() string { return f.tag }

// Serve answers with one file.
func (f *Files) Serve(w http.ResponseWriter, r *http.Request, name string) {
	text, there := f.files[name]
	if !there {
		http.NotFound(w, r)
		return
	}
	types := map[string]string{".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8",
		".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml", "": "text/plain; charset=utf-8"}
	h := w.Header()
	h.Set("Content-Type", types[path.Ext(name)])
	h.Set("Cache-Control", "no-cache")
	h.Set("ETag", `"`+f.tag+`"`)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(text))
}

// policy is for the browser. The page may load from its own origin only, and must not
// interpret text as markup.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; " +
	"require-trusted-types-for 'script'; trusted-types 'none'"

// Guard rejects requests of other web sites: those by DNS rebinding, and those that
// make a reader's browser send cross-origin requests.
func Guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		if !localHost(r.Host) {
			http.Error(w,
				"this page answers to localhost and loopback addresses only; reach it through a tunnel, such as "+
					"kubectl port-forward or ssh -L", http.StatusMisdirectedRequest)
			return
		}
		site := r.Header.Get("Sec-Fetch-Site")
		following := r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document"
		if site != "" && site != "same-origin" && site != "none" && !following {
			http.Error(w, "cross-site requests are refused", http.StatusForbidden)
			return
		}
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			h.Set("Allow", "GET, HEAD")
			http.Error(w, "the page is read-only", http.StatusMethodNotAllowed)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// localHost says whether a Host header names this machine in a way that no domain can.
func localHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}

// Turns bounds concurrent answers.
type Turns struct{ places chan struct{} }

// NewTurns has so many at a time.
func NewTurns(most int) *Turns { return &Turns{make(chan struct{}, most)} }

// Limited serves while there is a place; more wait, for a short time. slow bounds how long a reader may take.
func (t *Turns) Limited(slow time.Duration, next http.HandlerFunc) http.Handler {
	const wait = 2 * time.Second
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), wait)
		defer cancel()
		select {
		case t.places <- struct{}{}:
			defer func() { <-t.places }()
		case <-ctx.Done():
			Busy(w, "too many ask at the same time")
			return
		}
		// A ResponseWriter without deadlines is a test's.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(slow))
		next(w, r)
	})
}

// Busy asks a reader to come back.
func Busy(w http.ResponseWriter, why string) {
	w.Header().Set("Retry-After", "5")
	http.Error(w, why, http.StatusServiceUnavailable)
}

// Reply answers with JSON.
func Reply(w http.ResponseWriter, body any) {
	text, err := json.Marshal(body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(text, '\n')) // the reader went away
}

// Listen listens on HOST:PORT on loopback, or on the path of a Unix socket for root alone.
func Listen(address string) (net.Listener, error) {
	var l net.Listener
	var err error
	if path.IsAbs(address) {
		l, err = control.Listen(address)
	} else {
		l, err = net.Listen("tcp", address)
	}
	if err != nil {
		return nil, err
	}
	return serve.Limit(l, serve.Limits{All: maxConnections, FromOne: maxFromOne}), nil
}

// Serve serves on l until ctx ends. A stream bounds each of its writes itself.
func Serve(ctx context.Context, l net.Listener, h http.Handler) error {
	return serve.Serve(ctx, l, h, serve.Times{Request: 5 * time.Second, Idle: 10 * time.Second})
}
