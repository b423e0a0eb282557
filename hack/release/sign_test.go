package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestVerificationIsWhatThePageSays: the page's three lines are those that trust and publish run.
func TestVerificationIsWhatThePageSays(t *testing.T) {
	page, err := os.ReadFile("../../docs/releasing.md")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, words := range verification() {
		want = append(want, strings.Join(append([]string{"cosign", words[0], "--key", "cosign.pub"},
			append(words[1:], "REGISTRY/quietcore:v0.1.0")...), " "))
	}
	if block := "\n```sh\n" + strings.Join(want, "\n") + "\n```\n"; !strings.Contains(string(page), block) {
		t.Errorf("the page lacks%s", block)
	}
}

// TestPayloads: what is not an envelope is not taken for a statement.
func TestPayloads(t *testing.T) {
	list, err := payloads("{\"payload\":\"e30=\"}\n{\"payload\":\"e30=\"}\n")
	if err != nil || len(list) != 2 || string(list[0]) != "{}" {
		t.Errorf("%q, %v", list, err)
	}
	for _, wrong := range []string{"", "Verified OK\n", `{"payload":"?"}`} {
		if list, err := payloads(wrong); err == nil {
			t.Errorf("%q has the statements %q", wrong, list)
		}
	}
}

// TestStatementIn: what a bundle signs is read as it is, and a signature of bytes alone is no statement.
func TestStatementIn(t *testing.T) {
	file := filepath.Join(t.TempDir(), "bundle")
	for text, want := range map[string]string{
		`{"dsseEnvelope":{"payload":"e30="}}`: "{}", `{"messageSignature":{}}`: "signs no statement",
		"no JSON": "bundle: ",
	} {
		write(t, file, text)
		if got, err := statementIn(file); string(got) != want && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %q, %v", text, got, err)
		}
	}
}
