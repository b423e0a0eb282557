package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quietcore/quietcore/internal/cmdtest"
)

// TestHub runs the command beside an API server with one node, until it is told to end.
func TestHub(t *testing.T) {
	t.Parallel()
	const pod = `{"metadata":{"name":"POD","annotations":{"quietcore.dev/reader":"reader"}},` +
		`"spec":{"nodeName":"node-a","containers":[{"ports":[{"name":"metrics","containerPort":9464}]}]},` +
		`"status":{"phase":"Running"}}`
	answers := map[string]string{
		"/pods": `{"items":[` + pod + `]}`, "/serviceaccounts/reader/token": `{"status":{"token":"t"}}`,
		"/pods/https:POD:9464/proxy/quietcore/v1/summary": `{"node":"another","cpus":8,"cpi":"off"}`,
		"/pods/https:POD:9464/proxy/quietcore/v1/top":     `{}`,
	}
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, is := answers[strings.TrimPrefix(r.URL.Path, "/api/v1/namespaces/quietcore-system")]
		if !is || !strings.HasPrefix(r.UserAgent(), "quietcore-hub") {
			http.Error(w, "what is "+r.URL.Path+" for "+r.UserAgent(), http.StatusNotFound)
			return
		}
		fmt.Fprint(w, text)
	}))
	t.Cleanup(api.Close)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	cmdtest.Write(t, kubeconfig, "apiVersion: v1\nkind: Config\ncurrent-context: a\n"+
		"contexts: [{name: a, context: {cluster: a, user: a}}]\nusers: [{name: a, user: {token: t}}]\n"+
		"clusters: [{name: a, cluster: {server: '"+api.URL+"'}}]\n")
	page, probes := freePort(t), freePort(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, []string{"hub", "--kubeconfig", kubeconfig, "--listen", page, "--health", probes},
			strings.NewReader(""), io.Discard, io.Discard)
	}()
	get := func(url string) string {
		resp, err := http.Get(url)
		if err != nil {
			return err.Error()
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			return err.Error()
		}
		return resp.Status + " " + string(text)
	}
	last := ""
	waitUntil(t, "the node is on the page, under the name that the API server has", func() bool {
		last = get("http://" + page + "/api/fleet")
		return strings.Contains(last, `"name":"node-a","pod":"POD","cpus":8`)
	})
	waitUntil(t, "it is ready", func() bool { return get("http://"+probes+"/readyz") == "200 OK ok\n" })
	cancel()
	if code := <-ended; code != 0 {
		t.Errorf("it ends with %d; the page said %s", code, last)
	}
}
