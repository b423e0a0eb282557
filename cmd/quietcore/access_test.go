package main

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// readerToken is the one that the API server of reviewing allows.
const readerToken = "a-token-of-prometheus"

// reviewing is an API server that reviews tokens, and a kubeconfig for it.
func reviewing(t *testing.T) (server *httptest.Server, kubeconfig string) {
	t.Helper()
	server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review struct{ Spec struct{ Token string } }
		w.Header().Set("Content-Type", "application/json")
		switch {
		case strings.HasSuffix(r.URL.Path, "/subjectaccessreviews"):
			fmt.Fprint(w, `{"status":{"allowed":true}}`)
		case strings.HasSuffix(r.URL.Path, "/tokenreviews") && json.NewDecoder(r.Body).Decode(&review) == nil:
			fmt.Fprintf(w, `{"status":{"authenticated":%t,"user":{"username":"p"}}}`, review.Spec.Token == readerToken)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(server.Close)
	kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: a
contexts: [{name: a, context: {cluster: a, user: a}}]
clusters: [{name: a, cluster: {server: '%s'}}]
users: [{name: a, user: {}}]
`, server.URL)
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return server, kubeconfig
}

// reviewed is the part of a configuration for which reviewing suffices.
func reviewed(kubeconfig string) string {
	return "node: {name: a}\nkubernetes: {kubeconfig: " + kubeconfig +
		", pods: false, labels: false, events: false, nodeResourceTopology: {enabled: false}}"
}

// insecure is what reads without verifying a certificate that the daemon signed itself.
func insecure() *http.Transport {
	return &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
}

// Where /metrics does not listen on loopback it has TLS and takes a token, also while
// the API server is away.
func TestMetricsTakeAToken(t *testing.T) {
	server, kubeconfig := reviewing(t)
	p := newPlace(t, reviewed(kubeconfig))
	address := freePort(t)
	everywhere := "0.0.0.0" + address[strings.LastIndex(address, ":"):]
	text, err := os.ReadFile(p.config)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p.config, bytes.Replace(text, []byte(`listen: ""`), []byte("listen: "+everywhere), 1),
		0o600); err != nil {
		t.Fatal(err)
	}
	log, _ := p.start(t)
	client := &http.Client{Transport: insecure()}
	ask := func(scheme, token string) (int, string) {
		t.Helper()
		q, err := http.NewRequest(http.MethodGet, scheme+"://"+address+"/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			q.Header.Set("Authorization", "Bearer "+token)
		}
		resp, err := client.Do(q)
		if err != nil {
			return 0, err.Error()
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body)
	}
	waitUntil(t, "metrics are served", func() bool { code, _ := ask("https", ""); return code != 0 })
	for _, c := range []struct {
		scheme, token string
		want          int
	}{
		{"https", "", http.StatusUnauthorized}, {"https", "another", http.StatusUnauthorized},
		{"https", readerToken, http.StatusOK}, {"http", readerToken, http.StatusBadRequest},
	} {
		if code, body := ask(c.scheme, c.token); code != c.want ||
			strings.Contains(body, "quietcore_build_info{") != (c.want == http.StatusOK) {
			t.Errorf("%s, token %q: %d, want %d: %.200q\n%s", c.scheme, c.token, code, c.want, body, log)
		}
	}
	theRemoteAPI(t, address)
	server.Close()
	if code, _ := ask("https", readerToken); code != http.StatusOK {
		t.Errorf("without the API server: %d", code)
	}
}

// theRemoteAPI asks a whole daemon for what it serves to other machines, its doctor and its bundle included.
func theRemoteAPI(t *testing.T, address string) {
	t.Helper()
	transport := insecure()
	transport.DisableKeepAlives = false // a source may open few connections a second
	client := &http.Client{Transport: transport}
	defer client.CloseIdleConnections()
	for _, c := range []struct {
		path, token string
		want        int
		has         string
	}{
		{"/quietcore/v1/summary", "", http.StatusUnauthorized, "takes a bearer token"},
		{"/quietcore/v1/summary", readerToken, http.StatusOK, `"node":"a"`},
		{"/quietcore/v1/status", readerToken, http.StatusOK, `"pools":`},
		{"/quietcore/v1/top", readerToken, http.StatusOK, `"containers":`},
		{"/quietcore/v1/explain?pod=a/b", readerToken, http.StatusNotFound, "no container of a/b runs here"},
		{"/quietcore/v1/doctor", readerToken, http.StatusOK, `"id":"daemon`},
		{"/quietcore/v1/bundle", readerToken, http.StatusOK, "\x1f\x8b"},
		{"/quietcore/v1/mode", readerToken, http.StatusNotFound, ""},
		{"/v1/status", readerToken, http.StatusNotFound, ""},
	} {
		q, err := http.NewRequest(http.MethodGet, "https://"+address+c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if c.token != "" {
			q.Header.Set("Authorization", "Bearer "+c.token)
		}
		resp, err := client.Do(q)
		if err != nil {
			t.Errorf("%s: %v", c.path, err)
			continue
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != c.want || !strings.Contains(string(body), c.has) {
			t.Errorf("%s with token %q: %d, %v, want %d and %q: %.300q", c.path, c.token, resp.StatusCode, err, c.want,
				c.has, body)
		}
	}
}

// A configuration from before health.listen has its probes where they were: a new image with an older chart would be
// killed by kubelet for ever.
func TestProbesOfAnOlderChart(t *testing.T) {
	p := newPlace(t, "")
	address := freePort(t)
	text, err := os.ReadFile(p.config)
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.NewReplacer(`listen: ""`, "listen: 0.0.0.0"+address[strings.LastIndex(address, ":"):],
		"health: {listen: ''}", "health: {listen: '"+freePort(t)+"'}").Replace(string(text))
	if err := os.WriteFile(p.config, []byte(changed), 0o600); err != nil {
		t.Fatal(err)
	}
	log, _ := p.start(t)
	client := &http.Client{Transport: insecure()}
	get := func(path string) string {
		resp, err := client.Get("http://" + address + path)
		if err != nil {
			return err.Error()
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			return err.Error()
		}
		return resp.Status + " " + string(body)
	}
	waitUntil(t, "probes are served", func() bool { return strings.HasPrefix(get("/livez"), "200 OK") })
	if got := get("/metrics"); !strings.Contains(got, "\nquietcore_build_info{") {
		t.Errorf("metrics: %.200q", got)
	}
	if !strings.Contains(log.String(), "health.listen is on loopback and listen is not") {
		t.Errorf("nothing warns:\n%s", log)
	}
}
