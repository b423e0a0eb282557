package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

// request is the part of a line of the API server's audit log that the proofs read.
type request struct {
	Verb      string
	User      struct{ Username string }
	ObjectRef struct{ Resource, Subresource, Namespace, Name string }
	// ResponseStatus has the code of the answer.
	ResponseStatus struct{ Code int }
}

// String is the verb and what it is done to.
func (r *request) String() string {
	what := r.ObjectRef.Resource
	if r.ObjectRef.Subresource != "" {
		what += "/" + r.ObjectRef.Subresource
	}
	return strings.TrimSpace(r.Verb + " " + what)
}

// writes says that it changes something.
func (r *request) writes() bool {
	switch r.Verb {
	case "get", "list", "watch":
		return false
	}
	return true
}

// requestsOf are those of a user from a place in the log on. One that stays open is there once, when it ends.
func requestsOf(file, user string, since int64) ([]request, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if _, err := f.Seek(since, 0); err != nil {
		return nil, err
	}
	var list []request
	in := bufio.NewScanner(f)
	in.Buffer(nil, 1<<22)
	for in.Scan() {
		var r request
		if err := json.Unmarshal(in.Bytes(), &r); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		if r.User.Username == user {
			list = append(list, r)
		}
	}
	return list, in.Err()
}

// asked counts what a user asked the API server for while something happened, by verb
// and resource.
func asked(file, user string, since int64) (map[string]int, error) {
	list, err := requestsOf(file, user, since)
	if err != nil {
		return nil, err
	}
	counts := map[string]int{}
	for i := range list {
		counts[strings.TrimSpace(list[i].Verb+" "+list[i].ObjectRef.Resource)]++
	}
	return counts, nil
}

// auditEnd is where the log ends now.
func (b *bench) auditEnd() (int64, error) {
	info, err := os.Stat(b.AuditLog())
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}
