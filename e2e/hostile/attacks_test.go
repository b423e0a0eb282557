package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/quietcore/quietcore/internal/kube/planetest"
)

// chart are the rights and policies of the chart, as hack/chart renders them.
const chart = "../../hack/chart/testdata/hostile.yaml"

// stage is a real API server with two tenants, two nodes and Quietcore's accounts.
type stage struct {
	*planetest.Plane
	t      *testing.T
	tokens map[string]string // by who
}

func newStage(t *testing.T) *stage {
	s := &stage{planetest.Start(t), t, map[string]string{}}
	for _, crd := range []string{"noderesourcetopologies", "quietcorepolicies", "quietcoreturns", "quietcorenodes"} {
		s.Apply("../../charts/quietcore/files/" + crd + ".yaml")
	}
	for name, labels := range map[string]string{"mallory": "", "trusted": "quietcore.dev/exclusive: allowed",
		"shop": "", "quietcore-system": ""} {
		s.Create("/api/v1/namespaces", "{metadata: {name: "+name+", labels: {"+labels+"}}}")
	}
	s.Apply(chart)
	for _, path := range []string{topologies, rollouts + "/quietcorepolicies", rollouts + "/quietcoreturns",
		rollouts + "/quietcorenodes"} {
		s.Within(path+" is served", func() bool {
			code, _ := s.Try(http.MethodGet, path, "application/json", nil)
			return code == http.StatusOK
		})
	}
	for _, node := range []string{"n1", "n2"} {
		s.Create("/api/v1/nodes", "{metadata: {name: "+node+"}}")
		s.Merge("/api/v1/nodes/"+node+"/status", `{status: {capacity: {cpu: "16"}, allocatable: {cpu: "15"}}}`)
	}
	for ns, account := range map[string]string{own: "mallory", quiet: "quietcore"} {
		other := map[string]string{own: "binder", quiet: "quietcore-evictor"}[ns]
		for _, name := range []string{account, other} {
			s.Create(ns+"/serviceaccounts", "{metadata: {name: "+name+"}}")
		}
	}
	s.roles()
	s.victims()
	s.tokens[tenant] = s.token(own, "mallory", "")
	s.tokens[binder] = s.token(own, "binder", "")
	s.tokens[stolen] = s.token(quiet, "quietcore", "daemon-n1")
	s.tokens[unbound] = s.token(quiet, "quietcore", "")
	s.tokens[theEvicts] = s.token(quiet, "quietcore-evictor", "")
	return s
}

// roles: the tenant has what Kubernetes' role admin has. No controller adds these up here.
func (s *stage) roles() {
	for _, role := range []string{"admin", "edit", "view"} {
		for _, ns := range []string{"mallory", "trusted"} {
			s.Create(rbac+"/namespaces/"+ns+"/rolebindings", "{metadata: {name: "+role+"}, roleRef: {apiGroup: "+
				"rbac.authorization.k8s.io, kind: ClusterRole, name: 'system:aggregate-to-"+role+"'}, subjects: "+
				"[{kind: ServiceAccount, name: mallory, namespace: mallory}]}")
		}
	}
	s.Create(rbac+"/namespaces/mallory/roles", `{metadata: {name: binder}, rules: [
  {apiGroups: [""], resources: [pods/binding, bindings], verbs: [create]}]}`)
	s.Create(rbac+"/namespaces/mallory/rolebindings", `{metadata: {name: binder},
  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: binder},
  subjects: [{kind: ServiceAccount, name: binder, namespace: mallory}]}`)
}

// victims are what the attacks aim at.
func (s *stage) victims() {
	run := func(ns, name, node, spec string) {
		s.Create(ns+"/pods", fmt.Sprintf("{metadata: {name: %s, labels: {app: %s}}, spec: {nodeName: %s, %s"+
			"containers: [{name: a, image: a}]}}", name, name, node, spec))
		s.Merge(ns+"/pods/"+name+"/status",
			`{status: {phase: Running, conditions: [{type: Ready, status: "True"}]}}`)
	}
	run(shop, "web", "n2", "")
	run(shop, "own-1", "n1", "")
	run(shop, "guarded", "n1", "")
	run(quiet, "daemon-n1", "n1", "serviceAccountName: quietcore, ")
	s.Create("/apis/policy/v1/namespaces/shop/poddisruptionbudgets",
		"{metadata: {name: g}, spec: {minAvailable: 1, selector: {matchLabels: {app: guarded}}}}")
	s.Merge("/apis/policy/v1/namespaces/shop/poddisruptionbudgets/g/status", `{status: {observedGeneration: 1,
  currentHealthy: 1, desiredHealthy: 1, expectedPods: 1, disruptionsAllowed: 0}}`)
	s.Create(quiet+"/configmaps", "{metadata: {name: quietcore}, data: {config.yaml: x}}")
	s.Create("/apis/resource.k8s.io/v1/namespaces/shop/resourceclaims", "{metadata: {name: c}, spec: {}}")
	s.Create(events, strings.Replace(event("quietcore-n2", "Pod", "web"), "name: e", "name: of-n2", 1))
	s.Create(topologies, topology("n1"))
	s.Create(topologies, topology("n2"))
	s.Create(slicesPath, slice("of-n2", "n2", "cpu.quietcore.dev"))
}

// token is a real one of an account, of the pod if one is named.
func (s *stage) token(ns, account, pod string) string {
	s.t.Helper()
	spec := "{}"
	if pod != "" {
		spec = fmt.Sprintf("{boundObjectRef: {apiVersion: v1, kind: Pod, name: %s, uid: %s}}", pod,
			s.Get(ns+"/pods/"+pod, "metadata", "uid"))
	}
	var answer struct{ Status struct{ Token string } }
	text := s.Create(ns+"/serviceaccounts/"+account+"/token", "{spec: "+spec+"}")
	if err := json.Unmarshal(text, &answer); err != nil || answer.Status.Token == "" {
		s.t.Fatalf("a token of %s: %v", account, err)
	}
	return answer.Status.Token
}

// ask is a request of somebody's, and the API server's answer in words.
func (s *stage) ask(who string, r request, query string) (code int, says string) {
	s.t.Helper()
	body := []byte(nil)
	if r.body != "" {
		var err error
		if body, err = yaml.YAMLToJSON([]byte(r.body)); err != nil {
			s.t.Fatalf("%s: %v", r.body, err)
		}
	}
	config := rest.CopyConfig(s.Config())
	config.BearerToken = s.tokens[who]
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		s.t.Fatal(err)
	}
	url := config.Host + r.path
	if query != "" && r.method != http.MethodGet {
		url += map[bool]string{true: "&", false: "?"}[strings.Contains(r.path, "?")] + query
	}
	q, err := http.NewRequestWithContext(s.t.Context(), r.method, url, bytes.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	q.Header.Set("Content-Type", r.kind)
	resp, err := client.Do(q)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	var status struct{ Message string }
	if json.Unmarshal(text, &status) != nil || status.Message == "" {
		status.Message = string(text)
	}
	return resp.StatusCode, status.Message
}

// refused tells whether the API server refuses a request for the reason that it should.
func refused(code int, says, want string) bool {
	return (code == http.StatusForbidden || code == http.StatusUnprocessableEntity ||
		code == http.StatusTooManyRequests && want == beyondBudget) && strings.Contains(says, want)
}

// TestAttacks plays every attack on a real API server. Before it, whoever attacks may do what is theirs; after it,
// nothing of the others has changed.
func TestAttacks(t *testing.T) {
	s := newStage(t)
	s.mayDoTheirs(t)
	list := attacks()
	// Policies take effect a moment after they were made. What is never refused is shown below.
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		if !slices.ContainsFunc(list, func(a attack) bool {
			code, says := s.ask(a.who, a.request, "dryRun=All")
			return !refused(code, says, a.says)
		}) {
			break
		}
	}
	before := s.versions()
	for i, a := range list {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			code, says := s.ask(a.who, a.request, "")
			if !refused(code, says, a.says) {
				t.Fatalf("%s: %s: %d %.300s", a.who, a.what, code, says)
			}
			t.Logf("%s%s", heldBy, holder(says))
		})
	}
	after := s.versions()
	for path := range maps.Keys(before) {
		if before[path] != after[path] {
			t.Errorf("%s was changed", path)
		}
	}
}

// mayDoTheirs: a token that is good for nothing would be refused everything.
func (s *stage) mayDoTheirs(t *testing.T) {
	innocent := strings.Replace(pod("innocent", annotated("quietcore.dev/smt", "spread")), "spec: {",
		"spec: {nodeName: n1, ", 1)
	for _, own := range []attack{
		{who: tenant, request: create(own+"/pods", innocent)},
		{who: tenant, request: create(own+"/pods", pod("waiting", ""))},
		{who: tenant, request: create(trusted+"/pods", pod("owner", labelled("LSE")))},
		{who: stolen, request: strategic(shop+"/pods/own-1/status", mark)},
		{who: stolen, request: create(events, strings.Replace(event("quietcore-n1", "Pod", "own-1"), "name: e",
			"name: of-n1", 1))},
		{who: stolen, request: merge(topologies+"/n1", "{topologyPolicies: [x]}")},
		{who: stolen, request: create(slicesPath, slice("of-n1", "n1", "cpu.quietcore.dev"))},
		{who: stolen, request: merge("/api/v1/nodes/n1/status",
			`{status: {capacity: {quietcore.dev/batch-cpu: "1"}}}`)},
		{who: stolen, request: strategic(shop+"/pods/own-1/status", strings.Replace(mark, `"True"`, `"False"`, 1))},
		{who: unbound, request: read("/api/v1/pods?limit=1")},
		{who: theEvicts, request: read("/api/v1/pods?limit=1")},
		{who: theEvicts, request: create(shop+"/pods/own-1/eviction?dryRun=All",
			"{apiVersion: policy/v1, kind: Eviction, metadata: {name: own-1, namespace: shop}}")},
		{who: binder, request: create(own+"/pods/waiting/binding?dryRun=All", "{apiVersion: v1, kind: Binding, "+
			"metadata: {name: waiting}, target: {apiVersion: v1, kind: Node, name: n1}}")},
	} {
		if code, says := s.ask(own.who, own.request, ""); code/100 != 2 {
			t.Fatalf("%s may not %s %s: %d %s", own.who, own.method, own.path, code, says)
		}
	}
}

// versions are those of everything that an attack aims at.
func (s *stage) versions() map[string]string {
	all := map[string]string{}
	for _, path := range []string{shop + "/pods/web", shop + "/pods/own-1", shop + "/pods/guarded",
		quiet + "/pods/daemon-n1", own + "/pods/innocent", own + "/pods/waiting", own, "/api/v1/nodes/n1",
		"/api/v1/nodes/n2", topologies + "/n1", topologies + "/n2", slicesPath + "/of-n2", events + "/of-n2",
		quiet + "/configmaps/quietcore"} {
		all[path] = s.Get(path, "metadata", "resourceVersion")
	}
	for _, list := range []string{own + "/pods", shop + "/pods", quiet + "/pods", events, topologies, slicesPath,
		rollouts + "/quietcorepolicies", rollouts + "/quietcoreturns", rollouts + "/quietcorenodes",
		admission + "/validatingadmissionpolicies", admission + "/validatingadmissionpolicybindings",
		rbac + "/clusterrolebindings", rbac + "/namespaces/mallory/roles", rbac + "/namespaces/mallory/rolebindings"} {
		var l struct{ Items []any }
		if err := json.Unmarshal(s.Do(http.MethodGet, list, "application/json", "{}"), &l); err != nil {
			s.t.Fatal(err)
		}
		all[list] = fmt.Sprint(len(l.Items))
	}
	return all
}

var byPolicy = regexp.MustCompile(`ValidatingAdmissionPolicy '([^']+)'`)

// holder is what refused, of the API server's words.
func holder(says string) string {
	if m := byPolicy.FindStringSubmatch(says); m != nil {
		return "the policy `" + m[1] + "`"
	}
	for words, what := range map[string]string{
		"attempting to grant RBAC permissions": "RBAC: nobody grants more than they have",
		"\" cannot ":                           "RBAC: the right is not there",
		beyondBudget:                           "the disruption budget",
	} {
		if strings.Contains(says, words) {
			return what
		}
	}
	return fmt.Sprintf("%.80s", says)
}
