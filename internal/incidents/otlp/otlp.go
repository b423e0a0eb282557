// Package otlp makes OpenTelemetry's log records of incidents, one of each, for a file of OTLP/JSON ([File]), which the
// receiver otlpjsonfile of the OpenTelemetry Collector reads, and for a server of OTLP/HTTP ([Push]). It is for
// `kubectl quietcore`: the daemon carries no library for it.
//
// Messages are those of the module go.opentelemetry.io/proto/otlp. What OpenTelemetry has a name for has that one, of
// its semantic conventions as package semconv of opentelemetry-go lists them; all else begins with quietcore.
package otlp

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/semconv/v1.43.0"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	logspb "go.opentelemetry.io/proto/otlp/logs/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/quietcore/quietcore/internal/incidents"
)

// eventName is what each record is about.
const eventName = "quietcore.incident"

// File writes OTLP/JSON, a line of LogsData an incident.
type File struct{ w io.Writer }

// NewFile writes to w.
func NewFile(w io.Writer) *File { return &File{w} }

// Write adds an incident.
func (f *File) Write(i *incidents.Incident) error {
	data := &logspb.LogsData{ResourceLogs: []*logspb.ResourceLogs{logsOf(i.Node, recordOf(i))}}
	// OTLP/JSON has numbers for enumerations.
	text, err := protojson.MarshalOptions{UseEnumNumbers: true}.Marshal(data)
	if err != nil {
		return fmt.Errorf("incident %s: %w", i.ID, err)
	}
	_, err = f.w.Write(append(text, '\n'))
	return err
}

// Close has nothing left to write.
func (f *File) Close() error { return nil }

// logsOf are records of one node, which is the resource.
func logsOf(node string, records ...*logspb.LogRecord) *logspb.ResourceLogs {
	return &logspb.ResourceLogs{
		SchemaUrl: semconv.SchemaURL,
		Resource: &resourcepb.Resource{Attributes: attributes(field{semconv.ServiceNameKey, "quietcore"},
			field{semconv.K8SNodeNameKey, node})},
		ScopeLogs: []*logspb.ScopeLogs{{
			Scope:      &commonpb.InstrumentationScope{Name: "github.com/quietcore/quietcore"},
			SchemaUrl:  semconv.SchemaURL,
			LogRecords: records,
		}},
	}
}

// recordOf warns where somebody is to blame.
func recordOf(i *incidents.Incident) *logspb.LogRecord {
	level, name := logspb.SeverityNumber_SEVERITY_NUMBER_WARN, "WARN"
	if len(i.Antagonists) == 0 {
		level, name = logspb.SeverityNumber_SEVERITY_NUMBER_INFO, "INFO"
	}
	at := uint64(max(i.At.UnixNano(), 0))
	return &logspb.LogRecord{TimeUnixNano: at, ObservedTimeUnixNano: at, SeverityNumber: level, SeverityText: name,
		EventName: eventName, Body: value(sentence(i)), Attributes: attributes(about(i)...)}
}

// sentence is what people read of a record.
func sentence(i *incidents.Incident) string {
	text := fmt.Sprintf("%s had a CPI of %.3g, above its threshold of %.3g", i.Victim.Name(), i.CPI, i.Threshold)
	if i.Why != "" {
		text += ": " + i.Why
	}
	return text
}

func about(i *incidents.Incident) []field {
	return slices.Concat([]field{
		// Two records with one of these are one: who pushes an incident again adds none.
		{semconv.LogRecordUIDKey, cmp.Or(i.Node, "-") + "/" + i.ID},
		{"quietcore.incident.id", i.ID},
	}, whoIs(i.Victim), []field{
		{"quietcore.cpi", i.CPI}, {"quietcore.cpi.threshold", i.Threshold}, {"quietcore.cpi.normal", i.Spec.Mean},
		{"quietcore.cpi.stddev", i.Spec.StdDev}, {"quietcore.platform", i.Spec.Platform},
		{"quietcore.verdict", i.Verdict}, {"quietcore.resource", i.Evidence.Lacked()},
		{"quietcore.disturbed_seconds", i.DisturbedSeconds}, {"quietcore.result", i.Outcome.Result},
		{"quietcore.cpi.before", i.Outcome.Before}, {"quietcore.cpi.after", i.Outcome.After},
		{"quietcore.suspects", suspectsOf(i)}, {"quietcore.actions", actionsOf(i)},
		{"quietcore.experiments", experimentsOf(i)},
	})
}

func suspectsOf(i *incidents.Incident) (list []any) {
	for _, s := range i.Suspects {
		list = append(list, append(whoIs(s.Subject), field{"score", s.Score}, field{"contrast", s.Contrast},
			field{"confidence", s.Confidence}, field{"usage", s.Usage}, field{"shares", s.Shares},
			field{"antagonist", slices.ContainsFunc(i.Antagonists, s.Same)}))
	}
	return list
}

func actionsOf(i *incidents.Incident) (list []any) {
	for _, a := range i.Actions {
		one := append([]field{{"kind", a.Kind}, {"milli", a.Milli}, {"off", a.Off}, {"ended_why", a.EndedWhy}},
			whoIs(a.Subject)...)
		list = append(list, append(one, field{"from", moment(a.From)}, field{"until", moment(a.Until)},
			field{"ended", moment(a.Ended)}))
	}
	return list
}

func experimentsOf(i *incidents.Incident) (list []any) {
	for _, e := range i.Experiments {
		witness := ""
		if e.Witness != nil {
			witness = e.Witness.Job
		}
		list = append(list, []field{{"job", e.Job}, {"result", e.Result}, {"e_value", e.EValue},
			{"cpi_left_alone", e.Alone.CPI}, {"cpi_throttled", e.Under.CPI}, {"charged_minutes", e.Minutes},
			{"witness", witness}})
	}
	return list
}

// moment is a time, or nothing.
func moment(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

func whoIs(s incidents.Subject) []field {
	return []field{{semconv.K8SNamespaceNameKey, s.Namespace}, {semconv.K8SPodNameKey, s.Pod},
		{semconv.K8SContainerNameKey, s.Container}, {"quietcore.job", s.JobName()}, {"quietcore.class", s.Class},
		{"quietcore.cpus", s.CPUs}, {"quietcore.claims", s.Claims}}
}

// field is an attribute. Texts and lists that are empty are left out.
type field struct {
	key attribute.Key
	v   any // string, bool, int64, float64, []field, or []any of []field
}

func attributes(list ...field) (out []*commonpb.KeyValue) {
	for _, f := range list {
		if v := value(f.v); v != nil {
			out = append(out, &commonpb.KeyValue{Key: string(f.key), Value: v})
		}
	}
	return out
}

func value(v any) *commonpb.AnyValue {
	switch v := v.(type) {
	case string:
		if v == "" {
			return nil
		}
		return &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: strings.ToValidUTF8(v, "?")}}
	case bool:
		return &commonpb.AnyValue{Value: &commonpb.AnyValue_BoolValue{BoolValue: v}}
	case int64:
		return &commonpb.AnyValue{Value: &commonpb.AnyValue_IntValue{IntValue: v}}
	case float64:
		return &commonpb.AnyValue{Value: &commonpb.AnyValue_DoubleValue{DoubleValue: v}}
	case []field:
		return &commonpb.AnyValue{Value: &commonpb.AnyValue_KvlistValue{
			KvlistValue: &commonpb.KeyValueList{Values: attributes(v...)}}}
	case []any:
		if len(v) == 0 {
			return nil
		}
		all := make([]*commonpb.AnyValue, 0, len(v))
		for _, one := range v {
			all = append(all, value(one))
		}
		return &commonpb.AnyValue{Value: &commonpb.AnyValue_ArrayValue{ArrayValue: &commonpb.ArrayValue{Values: all}}}
	}
	return nil
}
