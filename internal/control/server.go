package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/quietcore/quietcore/internal/config"
	"github.com/quietcore/quietcore/internal/incidents"
	"github.com/quietcore/quietcore/internal/script"
	"github.com/quietcore/quietcore/internal/topodoc"
	"github.com/quietcore/quietcore/plugin"
	"github.com/quietcore/quietcore/policy"
	"github.com/quietcore/quietcore/topology"
)

// Server serves the state of one daemon.
type Server struct {
	Plugin *plugin.Plugin
	// Fresh reports whether the inputs that are watched outside the runtime (CPUs, kubelet's state)
	// are up to date; nil: they are.
	Fresh func() bool
	// Config is the configuration in force.
	Config func() *config.Config
	// RestartRequired names the keys of the configuration file that need a restart to take effect;
	// nil: there is no file.
	RestartRequired func() []string
	// Mode is the mode in force; SetMode is `quietcore mode`; nil: it cannot be changed.
	Mode    func() Mode
	SetMode func(ctx context.Context, word string) (Mode, error)
	// Policy is the QuietcorePolicy that is followed; nil, or a nil result: none is.
	Policy func() *FollowedPolicy
	// Performance is the state of the CPU performance counters; nil: they are off.
	Performance func() Performance
	// Usage is the CPU time that the containers of a snapshot have used, by ID; nil: unknown.
	Usage func(*policy.Snapshot) map[string]Used
	// Lending is the state of lending; nil, or a nil result: nothing is lent.
	Lending func(context.Context) *Lending
	// Confined says how the kernel confines the daemon.
	Confined Confined
	// Metrics answers /v1/metrics, in the format of Prometheus.
	Metrics http.Handler
	// Incidents are the incidents on this node; nil: not recorded.
	Incidents incidents.Source
	Reports   Reports
	About     About
}

// Status is the body of /v1/status.
type Status struct {
	Containers []script.State `json:"containers"`
	Pools      script.Pools   `json:"pools"`
	Owners     []Owner        `json:"owners"`
	// Unannounced are pods that run on the node and were never announced by the runtime.
	Unannounced []policy.FoundPod `json:"unannounced,omitempty"`
	// Rivals are other NRI plugins that set the CPUs of containers.
	Rivals []policy.Rival `json:"rivals,omitempty"`
	// Short are the shared pool, and parts of it, that have fewer CPUs than their pods request.
	Short []policy.Shortage `json:"short,omitempty"`
	// Waiting are the pods that wait for CPUs of their own, the oldest first.
	Waiting []policy.Waiting `json:"waiting,omitempty"`
	// Claims are those of our own DRA driver that have, or had, CPUs of the node.
	Claims []policy.ClaimView `json:"claims,omitempty"`
	// Powers are the pods that ask for powers.
	Powers []policy.PowersView `json:"powers,omitempty"`
	// Unseen is which cgroups could not be read, or are not trusted yet; empty: none.
	Unseen string `json:"unseen,omitempty"`
	// RestartRequired are keys that have changed in the configuration file and need a restart to
	// take effect.
	RestartRequired []string `json:"restartRequired,omitempty"`

	Confined Confined `json:"confined"`
	// Mode is the mode in force; nil: a daemon of before it could be changed.
	Mode *Mode `json:"mode,omitempty"`

	// Policy is the QuietcorePolicy that the node follows; nil: none is followed.
	Policy *FollowedPolicy `json:"policy,omitempty"`

	Revision     uint64 `json:"revision"`
	Settled      bool   `json:"settled"`
	Connected    bool   `json:"connected"`
	Synchronised bool   `json:"synchronised"`
	CPI          CPI    `json:"cpi"`
	// Throttled are the containers that the detector has throttled, by namespace/pod/container.
	Throttled map[string]Throttled `json:"throttled,omitempty"`
	Lending   *Lending             `json:"lending,omitempty"`
	// Report is the last day in one line; empty: not yet.
	Report   string          `json:"report,omitempty"`
	Topology json.RawMessage `json:"topology,omitempty"`
}

// FollowedPolicy says which QuietcorePolicy the node is to follow, which is in force, and why another one.
type FollowedPolicy struct {
	Policy          string `json:"policy,omitempty"`
	Revision        int64  `json:"revision,omitempty"`
	Applied         string `json:"applied,omitempty"` // empty: the file alone counts
	AppliedRevision int64  `json:"appliedRevision,omitempty"`
	State           string `json:"state"`
	Why             string `json:"why,omitempty"`
}

// Confined is what the kernel keeps the daemon from: it writes below these folders alone, executes nothing, and is
// denied these kinds of calls.
type Confined struct {
	Writes   []string `json:"writes,omitempty"`
	Why      string   `json:"why,omitempty"` // it is not confined to them
	Denied   []string `json:"denied,omitempty"`
	Undenied string   `json:"undenied,omitempty"` // why it is denied nothing
}

// Owner is a pod, or a container of one, with CPUs of its own, whether it runs or not.
type Owner struct {
	Namespace        string `json:"namespace"`
	Pod              string `json:"pod"`
	Container        string `json:"container,omitempty"` // empty: the pod as a whole
	CPUs             string `json:"cpus"`
	ManagedByKubelet bool   `json:"managedByKubelet,omitempty"`
}

func ownersOf(s *policy.Snapshot) []Owner {
	list := make([]Owner, 0, len(s.Owners))
	for _, o := range s.Owners {
		list = append(list, Owner{Namespace: o.Namespace, Pod: o.Pod, Container: o.Container,
			CPUs: o.CPUs.String(), ManagedByKubelet: o.ByKubelet})
	}
	return list
}

// Handler serves the operator's socket.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	for _, r := range s.routes() {
		mux.HandleFunc("GET "+r.path, r.answer)
	}
	mux.HandleFunc("GET /v1/record", s.record)
	if s.Metrics != nil {
		mux.Handle("GET /v1/metrics", s.Metrics)
	}
	s.handleMode(mux)
	return mux
}

func (s *Server) status(w http.ResponseWriter, r *http.Request) {
	out, err := s.statusNow(r.Context())
	if err != nil {
		fail(w, http.StatusInternalServerError, err)
		return
	}
	reply(w, http.StatusOK, out)
}

func (s *Server) statusNow(ctx context.Context) (*Status, error) {
	performance := s.performance()
	// Settled first: everything read after it is at least as new.
	out := &Status{
		Settled:   (s.Fresh == nil || s.Fresh()) && s.Plugin.Settled(),
		Connected: s.Plugin.Connected(), Synchronised: s.Plugin.Synchronised(), CPI: performance.CPI,
		Confined: s.Confined,
	}
	view, current := s.Plugin.Look()
	out.Settled = out.Settled && current
	out.Containers, out.Pools = script.StateOf(view)
	out.Throttled = throttledIn(view, performance.Throttled)
	out.Owners, out.Revision = ownersOf(view), view.Rev
	out.Unannounced, out.Unseen, out.Short = view.Unannounced, s.Plugin.Unseen(), view.Short
	out.Rivals = s.Plugin.Rivals()
	out.Powers, out.Waiting, out.Claims = view.Powers, view.Waiting, view.Claims
	if s.RestartRequired != nil {
		out.RestartRequired = s.RestartRequired()
	}
	if s.Mode != nil {
		now := s.Mode()
		out.Mode = &now
	}
	if s.Policy != nil {
		out.Policy = s.Policy()
	}
	if s.Lending != nil {
		out.Lending = s.Lending(ctx)
	}
	if s.Reports.Line != nil {
		out.Report = s.Reports.Line()
	}
	doc, err := topodoc.JSON(view.Topology)
	out.Topology = doc
	return out, err
}

func throttledIn(view *policy.Snapshot, by map[string]Throttled) map[string]Throttled {
	list := map[string]Throttled{}
	for _, c := range view.Containers {
		if why, is := by[c.ID]; is {
			list[c.Namespace+"/"+c.Pod+"/"+c.Name] = why
		}
	}
	return list
}

// record is a script: the machine, the configuration and every event since the
// oldest checkpoint that is kept.
func (s *Server) record(w http.ResponseWriter, r *http.Request) {
	records, err := s.Plugin.Records(r.Context())
	if err != nil {
		fail(w, http.StatusInternalServerError, err)
		return
	}
	cfg := *s.Config()
	f := script.File{Topology: cpusOf(s.Plugin.Snapshot().Topology), Node: cfg.Node, Config: cfg,
		Steps: make([]script.Step, 0, len(records))}
	for i := range records {
		f.Steps = append(f.Steps, script.Step{Event: &records[i]})
	}
	reply(w, http.StatusOK, f)
}

// cpusOf lists every CPU whose place is known; the record's first event has the online ones.
func cpusOf(t *topology.Topology) topodoc.Doc {
	doc := topodoc.Doc{Isolated: t.Isolated().And(t.Known())}
	for _, c := range t.CPUs() {
		cpu := topodoc.CPU{ID: c.ID, Core: c.Core, L3: c.L3, Node: c.Node, Socket: c.Socket}
		if topodoc.Hybrid(t) {
			cpu.Kind = c.Kind.String()
		}
		doc.CPUs = append(doc.CPUs, cpu)
	}
	return doc
}

func reply(w http.ResponseWriter, status int, body any) {
	text, err := json.Marshal(body)
	if err != nil {
		fail(w, http.StatusInternalServerError, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(text, '\n')) // the client disconnected
}

// fail answers with the code of a refusal, if err is one.
func fail(w http.ResponseWriter, status int, err error) {
	out := script.Error{Message: err.Error()}
	var refusal *policy.Refusal
	if errors.As(err, &refusal) {
		out.Code, out.Message = refusal.Code, refusal.Message
	}
	reply(w, status, out)
}

// Listen creates a socket for root only, in a directory for root only. A socket left by a dead
// daemon is replaced; the lock of the state directory guarantees that it is dead.
func Listen(path string) (net.Listener, error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	if info, err := os.Lstat(path); err == nil {
		if info.Mode().Type() != os.ModeSocket {
			return nil, fmt.Errorf("control socket %s: there is %s in its place; remove it or set socket", path,
				info.Mode().Type())
		}
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("control socket: %w", err)
		}
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		l.Close()
		return nil, fmt.Errorf("control socket: %w", err)
	}
	return l, nil
}

// Serve answers on l until ctx ends.
func Serve(ctx context.Context, l net.Listener, h http.Handler) error {
	const patience = 10 * time.Second
	srv := &http.Server{Handler: h, ReadHeaderTimeout: patience, MaxHeaderBytes: 16 << 10,
		BaseContext: func(net.Listener) context.Context {
			return ctx
		}}
	stop := context.AfterFunc(ctx, func() { srv.Close() })
	defer stop()
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s: %w", l.Addr(), err)
	}
	return nil
}
