package otlp

import (
	"bytes"
	"testing"
	"time"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	logspb "go.opentelemetry.io/proto/otlp/logs/v1"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/quietcore/quietcore/internal/incidents"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// two are one incident with everything and a bare one.
func two() []incidents.Incident {
	who := func(job string) incidents.Subject {
		return incidents.Subject{Namespace: "shop", Pod: job + "-1", Container: "main", Job: "shop/Deployment/" + job,
			Class: "BE", CPUs: "0-3", Claims: "shop/cpus"}
	}
	full := incidents.Bounded(incidents.Incident{
		At: noon, Node: "node-a", Victim: who("web"), CPI: 3.5, Threshold: 2.25, DisturbedSeconds: 60,
		Spec: incidents.Spec{Mean: 1.75, StdDev: 0.25, Platform: "Intel", Band: 1, Samples: 900, Tasks: 7},
		Suspects: []incidents.Suspect{
			{Subject: who("video"), Score: 0.5, Contrast: 0.75, Confidence: 0.9, Usage: 4, Shares: "L3"},
			{Subject: who("cron"), Score: 0.25},
		},
		Verdict: incidents.Cap, Antagonists: []incidents.Subject{who("video")}, Why: "it uses the cache",
		Evidence: &incidents.Evidence{Resource: "L3"},
		Actions: []incidents.Action{{Kind: incidents.Cap, Subject: who("video"), Milli: 100, From: noon,
			Until: noon.Add(5 * time.Minute)},
			{Kind: incidents.Move, Subject: who("video"), Off: "0-7", From: noon}},
		Experiments: []incidents.Experiment{{Job: "shop/Deployment/video", Result: incidents.Guilty, EValue: 40}},
		Outcome:     incidents.Outcome{Result: "failure", Before: 3.5, After: 3.25, Samples: 3},
	})
	bare := incidents.Bounded(incidents.Incident{At: noon.Add(time.Hour), Victim: who("db"), CPI: 2, Threshold: 1})
	full.Victim.Pod = "web\xff" // of a database that was tampered with
	return []incidents.Incident{full, bare}
}

// named are attributes by their names, each of which is there once.
func named(t *testing.T, list []*commonpb.KeyValue) map[string]any {
	t.Helper()
	by := map[string]any{}
	for _, a := range list {
		if by[a.Key] != nil {
			t.Errorf("%s is there twice", a.Key)
		}
		by[a.Key] = plain(t, a.Value)
	}
	return by
}

func plain(t *testing.T, v *commonpb.AnyValue) any {
	t.Helper()
	switch v := v.Value.(type) {
	case *commonpb.AnyValue_StringValue:
		return v.StringValue
	case *commonpb.AnyValue_BoolValue:
		return v.BoolValue
	case *commonpb.AnyValue_IntValue:
		return v.IntValue
	case *commonpb.AnyValue_DoubleValue:
		return v.DoubleValue
	case *commonpb.AnyValue_KvlistValue:
		return named(t, v.KvlistValue.Values)
	case *commonpb.AnyValue_ArrayValue:
		var list []any
		for _, one := range v.ArrayValue.Values {
			list = append(list, plain(t, one))
		}
		return list
	}
	t.Errorf("a value of %T", v.Value)
	return nil
}

func differ(t *testing.T, where string, got, want map[string]any) {
	t.Helper()
	for key, v := range want {
		if got[key] != v {
			t.Errorf("%s: %s is %#v, want %#v", where, key, got[key], v)
		}
	}
}

// Every line is LogsData as OpenTelemetry's own messages read it, with the node as resource, names and numbers.
func TestAFileIsReadBack(t *testing.T) {
	var b bytes.Buffer
	f := NewFile(&b)
	list := two()
	for i := range list {
		if err := f.Write(&list[i]); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	lines := bytes.Split(bytes.TrimSpace(b.Bytes()), []byte("\n"))
	if len(lines) != len(list) || !bytes.Contains(lines[0], []byte(`"severityNumber":13`)) {
		t.Fatalf("%d lines of two incidents: %s", len(lines), b.Bytes())
	}
	var records []*logspb.LogRecord
	for _, text := range lines {
		var data logspb.LogsData
		if err := protojson.Unmarshal(text, &data); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		records = append(records, data.ResourceLogs[0].ScopeLogs[0].LogRecords...)
		if len(records) == 1 {
			differ(t, "resource", named(t, data.ResourceLogs[0].Resource.Attributes),
				map[string]any{"service.name": "quietcore", "k8s.node.name": "node-a"})
		}
	}
	r, about := records[0], named(t, records[0].Attributes)
	const body = "shop/web?/main had a CPI of 3.5, above its threshold of 2.25: it uses the cache"
	if r.TimeUnixNano != uint64(noon.UnixNano()) || r.ObservedTimeUnixNano != r.TimeUnixNano ||
		r.EventName != eventName || r.SeverityText != "WARN" || r.Body.GetStringValue() != body {
		t.Errorf("read back as %v", r)
	}
	differ(t, "record", about, map[string]any{"quietcore.incident.id": list[0].ID, "k8s.namespace.name": "shop",
		"log.record.uid": "node-a/" + list[0].ID, "k8s.pod.name": "web?", "k8s.container.name": "main",
		"quietcore.job": "shop/Deployment/web", "quietcore.cpi": 3.5, "quietcore.cpi.normal": 1.75,
		"quietcore.result": "failure", "quietcore.resource": "L3", "quietcore.verdict": "cap",
		"quietcore.disturbed_seconds": 60.0})
	part := func(key string, n int) map[string]any {
		all, _ := about[key].([]any)
		if len(all) != n {
			t.Fatalf("%d %s, want %d", len(all), key, n)
		}
		return all[0].(map[string]any)
	}
	differ(t, "suspect", part("quietcore.suspects", 2), map[string]any{"antagonist": true, "score": 0.5, "usage": 4.0,
		"quietcore.job": "shop/Deployment/video", "k8s.pod.name": "video-1", "shares": "L3",
		"quietcore.claims": "shop/cpus"})
	differ(t, "action", part("quietcore.actions", 2), map[string]any{"kind": "cap", "milli": int64(100), "off": nil,
		"k8s.pod.name": "video-1", "from": "2026-11-21T12:00:00Z", "until": "2026-11-21T12:05:00Z", "ended": nil})
	differ(t, "experiment", part("quietcore.experiments", 1), map[string]any{"result": "guilty", "e_value": 40.0})
	bare := records[1]
	differ(t, "bare", named(t, bare.Attributes), map[string]any{"log.record.uid": "-/" + list[1].ID,
		"quietcore.suspects": nil, "quietcore.resource": nil})
	if bare.SeverityNumber != logspb.SeverityNumber_SEVERITY_NUMBER_INFO {
		t.Errorf("the bare one is %v", bare.SeverityNumber)
	}
}
