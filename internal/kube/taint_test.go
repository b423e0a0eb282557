package kube

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Of a Node's taints ours are told, with their places, at every change; none once the Node is gone.
func TestTheStartupTaint(t *testing.T) {
	var told []string
	n := &node{name: "n1", health: newHealth(&Options{Node: "n1", Now: time.Now,
		Log: slog.New(slog.DiscardHandler), Report: func(string, string) {}}),
		taints: func(list []Taint) {
			text := ""
			for _, taint := range list {
				text += fmt.Sprintf("%d %s;", taint.Index, taint.Raw)
			}
			told = append(told, text)
		}}
	for _, spec := range []string{`{}`, `{"taints":null}`, `{"taints":[{"key":"a","effect":"NoSchedule"}]}`,
		`{"taints":[{"key":"a"},{"key":"quietcore.dev/not-ready","effect":"NoSchedule"},{"key":"b"},` +
			`{"key":"quietcore.dev/not-ready","effect":"NoExecute"}]}`} {
		text := []byte(fmt.Sprintf(`{"metadata":{"name":"n1","uid":"u"},"spec":%s}`, spec))
		o, err := slimNode(text)
		if err != nil {
			t.Fatal(err)
		}
		clear(text) // the buffer is another Node's next
		n.put(t.Context(), &o)
	}
	n.gone()
	want := []string{"", "", "", `1 {"key":"quietcore.dev/not-ready","effect":"NoSchedule"};` +
		`3 {"key":"quietcore.dev/not-ready","effect":"NoExecute"};`, ""}
	if diff := cmp.Diff(want, told); diff != "" {
		t.Error(diff)
	}
	for _, bad := range []string{`{"taints":[1]}`, `{"taints":{}}`} {
		if _, err := slimNode([]byte(`{"metadata":{"name":"n1"},"spec":` + bad + `}`)); err == nil {
			t.Errorf("%s is taken", bad)
		}
	}
}
