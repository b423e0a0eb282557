package kubelet

import (
	"encoding/json"
	"hash/crc32"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Nothing but a whole checkpoint says which claims kubelet knows.
func TestClaimsOfKubelet(t *testing.T) {
	const version = `"kind":"DRACheckpoint","apiVersion":"checkpoint.dra.kubelet.k8s.io/v1"`
	for _, c := range []struct{ name, data, want, fails string }{
		{"two claims", `{` + version + `,"ClaimInfoStateList":[{"ClaimUID":"a","ClaimName":"x","PodUIDs":{"p":{}}},` +
			`{"ClaimUID":"b"}]}`, "a b", ""},
		{"no claims", `{` + version + `,"ClaimInfoStateList":null}`, "", ""},
		{"another kind", `{"kind":"Other","apiVersion":"checkpoint.dra.kubelet.k8s.io/v1"}`, "", "not a DRACheckpoint"},
		{"another group", `{"kind":"DRACheckpoint","apiVersion":"v1"}`, "", "not a DRACheckpoint"},
		{"nothing", ``, "", "unexpected end"},
		{"no UID", `{` + version + `,"ClaimInfoStateList":[{"ClaimName":"x"}]}`, "", "no UID"},
	} {
		text, err := json.Marshal(map[string]any{"Data": c.data, "Checksum": crc32.ChecksumIEEE([]byte(c.data))})
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), ClaimsFile)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := ReadClaims(path)
		uids := strings.Join(slices.Sorted(maps.Keys(got)), " ")
		if uids != c.want || (err == nil) != (c.fails == "") || err != nil && !strings.Contains(err.Error(), c.fails) {
			t.Errorf("%s: %q, %v", c.name, uids, err)
		}
		torn := strings.Replace(string(text), `"Checksum":`, `"Checksum":1`, 1)
		if _, err := parseClaims([]byte(torn)); err == nil {
			t.Errorf("%s is believed with a wrong checksum", c.name)
		}
	}
	if _, err := parseClaims([]byte(`{"Data":""}`)); err == nil {
		t.Error("a file without a checksum is believed")
	}
	if _, err := ReadClaims(filepath.Join(t.TempDir(), ClaimsFile)); !os.IsNotExist(err) {
		t.Errorf("no file: %v", err)
	}
}
