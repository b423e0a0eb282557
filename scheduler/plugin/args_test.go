package plugin

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
)

// TestArguments: an argument that is not understood is named, with what it is and may be.
func TestArguments(t *testing.T) {
	defaults := Args{AbsentNodes: AbsentRefuse, Annotate: TellBinding, RefusedPods: RefusedLeave}
	const head = "arguments of the plugin Quietcore: "
	for _, c := range []struct {
		raw  string
		want Args
		err  string
	}{
		{raw: ``, want: defaults},
		{raw: `{}`, want: defaults},
		{raw: `{"absentNodes":"Ignore"}`, want: Args{AbsentIgnore, TellBinding, RefusedLeave}},
		{raw: `{"annotate":"PreBind","refusedPods":"Delete"}`, want: Args{AbsentRefuse, TellPreBind, RefusedDelete}},
		{raw: `{"absentNodes":"refuse"}`, err: head + `absentNodes: is "refuse"; it must be Refuse or Ignore`},
		{raw: `{"absentNodes":""}`, err: head + `absentNodes: is ""; it must be Refuse or Ignore`},
		{raw: `{"absentNodes":null}`, err: head + `absentNodes: is null; it must be Refuse or Ignore`},
		{raw: `{"annotate":true}`, err: head + `annotate: is true; it must be Binding or PreBind`},
		{raw: `{"annotate":["Binding"]}`, err: head + `annotate: is ["Binding"]; it must be Binding or PreBind`},
		{raw: `{"refusedPods":7}`, err: head + `refusedPods: is 7; it must be Leave or Delete`},
		{raw: `{"refusedPods":{"on":true}}`, err: head + `refusedPods: is {"on":true}; it must be Leave or Delete`},
		{raw: `{"absentnodes":"Ignore"}`,
			err: head + `unknown key "absentnodes"; did you mean "absentNodes"? Keys are case-sensitive`},
		{raw: `{"refused":"Leave"}`, err: head + `unknown key "refused"; did you mean "refusedPods"?`},
		{raw: `{"absentNodes":"no","annotate":1}`, err: head +
			`absentNodes: is "no"; it must be Refuse or Ignore; annotate: is 1; it must be Binding or PreBind`},
		{raw: `["Ignore"]`, err: head + `is a list, must be a mapping`},
	} {
		got, err := readArgs(&runtime.Unknown{Raw: []byte(c.raw)})
		switch {
		case c.err == "" && (err != nil || got != c.want):
			t.Errorf("%s: %+v, %v", c.raw, got, err)
		case c.err != "" && (err == nil || err.Error() != c.err):
			t.Errorf("%s: %v\nwant %s", c.raw, err, c.err)
		}
	}
	if got, err := readArgs(nil); err != nil || got != defaults {
		t.Errorf("nothing: %+v, %v", got, err)
	}
}
