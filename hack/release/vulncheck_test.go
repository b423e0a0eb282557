package main

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
)

// TestVulncheck runs the real scanner on databases of one entry: what is called is
// found, what is only imported is not held against the program, and no database is no
// pass.
func TestVulncheck(t *testing.T) {
	source := small(t)
	for name, test := range map[string]struct {
		symbol string
		want   string
	}{
		"called":   {"Getenv", "take the version that mends them"},
		"imported": {"Lchown", ""},
	} {
		t.Run(name, func(t *testing.T) {
			db := t.TempDir()
			const at = `"2026-01-01T00:00:00Z"`
			write(t, filepath.Join(db, "index/db.json"), `{"modified":`+at+`}`)
			write(t, filepath.Join(db, "index/modules.json"),
				`[{"path":"stdlib","vulns":[{"id":"GO-2026-0001","modified":`+at+`}]}]`)
			write(t, filepath.Join(db, "index/vulns.json"), `[{"id":"GO-2026-0001","modified":`+at+`}]`)
			write(t, filepath.Join(db, "ID/GO-2026-0001.json"), `{
				"schema_version":"1.3.1","id":"GO-2026-0001","modified":`+at+`,"published":`+at+
				`,"summary":"for a test","details":"for a test","database_specific":{"url":"https://example.org/"},
				"affected":[{"package":{"name":"stdlib","ecosystem":"Go"},
				"ranges":[{"type":"SEMVER","events":[{"introduced":"0"}]}],
				"ecosystem_specific":{"imports":[{"path":"os","symbols":["`+test.symbol+`"]}]}}]}`)
			var out bytes.Buffer
			err := vulncheck(context.Background(), source, "file://"+db, &out)
			if test.want == "" && err != nil || test.want != "" && (err == nil ||
				!strings.Contains(err.Error(), test.want)) {
				t.Errorf("it says %v, want %q\n%s", err, test.want, &out)
			}
			if found := strings.Contains(out.String(), "Vulnerability #1: GO-2026-0001"); found != (test.want != "") {
				t.Errorf("it prints\n%s", &out)
			}
		})
	}

	for name, db := range map[string]string{"nobody listens": "http://127.0.0.1:1", "an empty folder": "file://" +
		t.TempDir(), "no folder": "file:///nowhere"} {
		args := []string{"vulncheck", "-source", source, "-db", db}
		var out bytes.Buffer
		if err := run(context.Background(), args, &out); !errors.Is(err, errUnreachable) {
			t.Errorf("%s: it says %v", name, err)
		}
		if err := run(context.Background(), append(args, "-unreachable-ok"), &out); err != nil ||
			!strings.HasPrefix(out.String(), "NOT CHECKED") {
			t.Errorf("%s, where that is allowed: it says %v and prints %q", name, err, &out)
		}
	}
}
