package pagetest

import (
	"io/fs"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
)

// SelfContained wants a page to serve every file of some folders with a tag, and none of them to load anything from
// elsewhere or to take text for markup.
func SelfContained(t *testing.T, h http.Handler, folders ...fs.FS) {
	t.Helper()
	get := func(name, known string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodGet, "/assets/"+name, nil)
		r.Host = "localhost"
		if known != "" {
			r.Header.Set("If-None-Match", known)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	for _, folder := range folders {
		list, err := fs.ReadDir(folder, ".")
		if err != nil || len(list) == 0 {
			t.Fatalf("%d files, %v", len(list), err)
		}
		for _, f := range list {
			w := get(f.Name(), "")
			if w.Code != http.StatusOK || w.Header().Get("Content-Type") == "" || w.Header().Get("ETag") == "" {
				t.Errorf("%s: %d %v", f.Name(), w.Code, w.Header())
			}
			if why := interprets(w.Body.String()); why != "" {
				t.Errorf("%s %s", f.Name(), why)
			}
			if again := get(f.Name(), w.Header().Get("ETag")); again.Code != http.StatusNotModified {
				t.Errorf("%s: %d for a known tag", f.Name(), again.Code)
			}
		}
	}
}

// interprets says what a file must not do; empty: it does not.
func interprets(text string) string {
	text = strings.ReplaceAll(text, "http://www.w3.org/2000/svg", "")
	text = regexp.MustCompile(`^/\*! https://github\.com/leeoniya/uPlot \(v[\d.]+\) \*/\n`).ReplaceAllString(text, "")
	for _, bad := range []string{"http:", "https:", "//cdn", "outerHTML", "insertAdjacentHTML", "document.write",
		"eval(", "new Function", "localStorage"} {
		if strings.Contains(text, bad) {
			return "contains " + bad
		}
	}
	if regexp.MustCompile(`innerHTML\s*=[^=]`).MatchString(text) {
		return "sets innerHTML"
	}
	return ""
}
