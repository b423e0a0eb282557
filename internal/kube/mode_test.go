package kube

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"
)

// The Node's annotation of the mode is told when the Node is first seen and when it changes, and no other annotation is
// kept.
func TestTheModeOfTheNode(t *testing.T) {
	var told []string
	n := &node{name: "n1", health: newHealth(&Options{Node: "n1", Now: time.Now,
		Log: slog.New(slog.DiscardHandler), Report: func(string, string) {}}),
		mode: func(_ context.Context, value string) { told = append(told, value) }}
	for _, annotations := range []string{`{}`, `{"a":"b"}`, `{"quietcore.dev/mode":"observe","a":"b"}`,
		`{"quietcore.dev/mode":"observe"}`, `{"quietcore.dev/mode":""}`, `{"quietcore.dev/mode":"enforce"}`} {
		o, err := slimNode([]byte(fmt.Sprintf(`{"metadata":{"name":"n1","uid":"u","annotations":%s}}`, annotations)))
		if err != nil {
			t.Fatal(err)
		}
		if o.Annotations["a"] != "" {
			t.Error("another annotation is kept")
		}
		n.put(t.Context(), &o)
	}
	if want := []string{"", "observe", "", "enforce"}; !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
}
