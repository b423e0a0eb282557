package kube

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// Of an object of another kind its name, UID, generation and spec are kept, and no more than is wanted.
func TestCustomObjects(t *testing.T) {
	var got []string
	k := &Custom{Path: "/apis/a/v1/things", Kind: "Thing", Max: 20, On: func(all []CustomObject) {
		var now []string
		for _, o := range all {
			now = append(now, fmt.Sprintf("%s/%s/%d/%s/%t", o.Name, o.UID, o.Generation, o.Spec, o.TooLarge))
		}
		got = append(got, strings.Join(now, " "))
	}}
	read := func(text string) *object {
		raw := json.RawMessage(text)
		o, err := k.slim(raw)
		if err != nil {
			t.Fatal(err)
		}
		for i := range raw {
			raw[i] = 'x' // the buffer is used again
		}
		return &o
	}
	s := &customStore{on: k.On}
	a, b := `{"metadata":{"name":"a","uid":"u1","generation":3,"labels":{"a":"b"}},"spec":{"x":1},"status":{"y":2}}`,
		`{"metadata":{"name":"b","uid":"u2","generation":1},"spec":{"x":"0123456789 0123456789"}}`
	for _, err := range []error{
		s.Replace([]any{read(b), read(a)}, "7"), s.Delete(read(b)),
		s.Update(read(strings.Replace(a, `"x":1`, `"x":2`, 1))),
		s.Add(read(b)), s.Replace(nil, "8"), s.Resync(),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	want := []string{`a/u1/3/{"x":1}/false b/u2/1//true`, `a/u1/3/{"x":1}/false`, `a/u1/3/{"x":2}/false`,
		`a/u1/3/{"x":2}/false b/u2/1//true`, ``}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("told\n%q, want\n%q", got, want)
	}
	if f := (&Client{}).customFeed(k); f.resource != "things" || f.path != k.Path || f.kind != "Thing" {
		t.Errorf("%+v", f)
	}
	if _, err := k.slim([]byte("[")); err == nil {
		t.Error("half an object is taken")
	}
}

// All labels of the Node are told where somebody wants them, when they change.
func TestAllLabels(t *testing.T) {
	var told []string
	n := &node{name: "n1", health: newHealth(&Options{Now: time.Now, Log: slog.New(slog.DiscardHandler),
		Report: func(string, string) {}}),
		all: func(labels map[string]string) { told = append(told, fmt.Sprint(labels)) }}
	for _, labels := range []string{`null`, `{"pool":"batch"}`, `{"pool":"batch"}`,
		`{"pool":"batch","node.koordinator.sh/x":"y"}`} {
		o, err := slimNode([]byte(`{"metadata":{"name":"n1","uid":"u","labels":` + labels + `}}`))
		if err != nil {
			t.Fatal(err)
		}
		if _, kept := o.Labels["pool"]; kept {
			t.Error("a label that no policy of the node reads is among those that are")
		}
		n.put(t.Context(), &o)
	}
	if want := "[map[] map[pool:batch] map[node.koordinator.sh/x:y pool:batch]]"; fmt.Sprint(told) != want {
		t.Errorf("told %v, want %s", told, want)
	}
}
