package kube

import (
	"net/http"
	"testing"
)

// Whatever an API server under pressure answers, what is known stays known, is asked for again, and is up to date once
// the server has recovered.
func TestStorms(t *testing.T) {
	refuse := func(code int, reason string) func(string, string, http.ResponseWriter) bool {
		return func(_, resource string, w http.ResponseWriter) bool {
			if resource != "pods" {
				return false
			}
			if code == http.StatusTooManyRequests {
				w.Header().Set("Retry-After", "1")
			}
			answer(w, code, status(code, reason, "try again"))
			return true
		}
	}
	watches := func(body func(w http.ResponseWriter)) func(string, string, http.ResponseWriter) bool {
		return func(verb, resource string, w http.ResponseWriter) bool {
			if verb != "WATCH" || resource != "pods" {
				return false
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusOK)
			body(w)
			return true
		}
	}
	for _, c := range []struct {
		name  string
		fault func(verb, resource string, w http.ResponseWriter) bool
		stale bool // what changes meanwhile cannot be known
	}{
		{"429 on list and watch", refuse(http.StatusTooManyRequests, "TooManyRequests"), true},
		{"500 on list and watch", refuse(http.StatusInternalServerError, "InternalError"), true},
		{"410 on every watch", watches(func(w http.ResponseWriter) {
			frameTo(w, "ERROR", status(http.StatusGone, "Expired", "too old resource version"))
		}), false},
		{"watches that end before their first bookmark", watches(func(http.ResponseWriter) {}), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := upServer(t)
			s.putPod(testPod("db", "4"))
			s.putNode(nil)
			f := s.run()
			f.within("the pod is known", func() bool { return f.knows("uid-db")() && f.State() == "" })
			s.breaks(c.fault)
			// A server that was broken before the watch began refuses watches, else lists.
			asked := func() int { return s.count("GET pods") + s.count("WATCH pods") }
			before := asked()
			s.compact() // the watch ends
			f.within("it is asked again and again", func() bool { return asked() > before+10 })
			if !f.knows("uid-db")() {
				t.Error("a pod that was known is forgotten")
			}
			s.putPod(testPod("web", "1"))
			if !c.stale {
				f.within("a list says what watches do not", f.knows("uid-web"))
			}
			s.deletePod(testPod("db", "4"))
			s.breaks(nil)
			f.within("the server has recovered", func() bool {
				return f.knows("uid-web")() && !f.knows("uid-db")() && f.State() == ""
			})
		})
	}
}
